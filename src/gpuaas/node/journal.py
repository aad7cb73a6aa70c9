"""What the agent must still know after a crash or a power cut. Every change is on disk before it is in memory.

But for the revision, which `keep_revision` writes now and then: whoever asks for an older one is sent again what is
known here, and a spec that changes nothing is no news.

    head.json        incarnation of this journal, the store it follows, how far it follows it
    node.json        who this node is; written once
    facts.json       what happened and is not acknowledged yet
    <id>.json        one record per object, for ever: ids are never reused, and a deletion must never be forgotten

A file that cannot be read is set aside as <name>.bad. What it described is learnt again: from the server, which is
asked for everything since revision 0, and from the host, where unknown objects are reported and kept.
"""

import logging
import re
import threading
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import Ids
from gpuaas.node.host.interface import Disk
from gpuaas.node.record import Record
from gpuaas.wire.node import Fact, Id

log = logging.getLogger(__name__)

HEAD, NODE, FACTS = "head.json", "node.json", "facts.json"
_RECORD = re.compile(r"[a-z]{2}-[a-z2-7]{16}\.json")


class _Head(Struct, frozen=True):
    incarnation: Id
    lineage: str = ""
    store_id: Id | None = None
    revision: int = 0
    boot_id: str = ""  # of the host, when an agent last started on it


class _Node(Struct, frozen=True):
    node_id: Id


class _Facts(Struct, frozen=True):
    following: int  # the next sequence number
    queued: list[Fact] = []


_T = TypeVar("_T")


class Journal:
    """`lock` guards the journal and everything the runner derives from it; it is held while the disk is written."""

    def __init__(self, disk: Disk, ids: Ids, lock: AbstractContextManager[Any] | None = None) -> None:
        self._disk = disk
        self._ids = ids
        self.lock: AbstractContextManager[Any] = lock or threading.RLock()
        self.bad: dict[str, bytes | None] = {}  # files that could not be read when this journal was opened
        self._live: dict[str, Record] = {}
        self._gone: dict[str, Record] = {}
        node = self._load(NODE, _Node)
        self.node_id: str | None = node.node_id if node else None
        self._facts = self._load(FACTS, _Facts) or _Facts(following=1)
        head = self._load(HEAD, _Head)
        for name in disk.names():
            if _RECORD.fullmatch(name):
                self._load_record(name)
        self._head = self._open(head)
        self.revision = self._head.revision  # how far this node follows its store

    # where this node stands with its server

    @property
    def incarnation(self) -> str:
        return self._head.incarnation

    @property
    def lineage(self) -> str:
        return self._head.lineage

    @property
    def store_id(self) -> str | None:
        return self._head.store_id

    def joined(self, node_id: str) -> None:
        self._write(NODE, _Node(node_id))
        self.node_id = node_id

    def synced(self, store_id: str) -> None:
        """The server has heard all that this node holds: from here on its word counts, whatever came before."""
        with self.lock:
            self._put_head(store_id=store_id, revision=0, lineage=self._ids.new("ln"))
            self.revision = 0

    def advance(self, revision: int) -> None:
        with self.lock:
            self.revision = max(self.revision, revision)

    def keep_revision(self) -> None:
        with self.lock:
            if self.revision != self._head.revision:
                self._put_head(revision=self.revision)

    @property
    def boot_id(self) -> str:
        return self._head.boot_id

    def booted(self, boot_id: str) -> None:
        with self.lock:
            self._put_head(boot_id=boot_id)

    # objects

    def record(self, id: str) -> Record | None:
        return self._live.get(id) or self._gone.get(id)

    def live(self) -> list[Record]:
        return list(self._live.values())

    def gone(self) -> list[Record]:
        return list(self._gone.values())

    def put(self, record: Record) -> None:
        with self.lock:
            self._write(f"{record.id}.json", record)
            self._keep(record)

    def change(self, id: str, **fields: Any) -> Record:
        with self.lock:
            record = self._live.get(id) or self._gone[id]
            changed = msgspec.structs.replace(record, **fields)
            self.put(changed)
            return changed

    # facts

    def facts(self) -> list[Fact]:
        return self._facts.queued

    def add_fact(self, kind: str, object_id: str, at: float, data: dict[str, str]) -> None:
        """Queued until acknowledged. The same fact, still queued from before a crash, is not queued twice."""
        with self.lock:
            if any(f.kind == kind and f.object_id == object_id and f.data == data for f in self._facts.queued):
                return
            fact = Fact(self._facts.following, kind, object_id, at, data)
            self._put_facts(_Facts(self._facts.following + 1, [*self._facts.queued, fact]))

    def acknowledge(self, sequences: set[int]) -> None:
        with self.lock:
            left = [fact for fact in self._facts.queued if fact.sequence not in sequences]
            if len(left) < len(self._facts.queued):
                self._put_facts(_Facts(self._facts.following, left))

    # files

    def _open(self, head: _Head | None) -> _Head:
        opened = head or _Head(self._ids.new("jn"))
        if head is not None and FACTS in self.bad:
            # Facts are counted once by (incarnation, sequence): a lost counter must not start again under its name.
            opened = msgspec.structs.replace(opened, incarnation=self._ids.new("jn"))
        if self.bad:
            opened = msgspec.structs.replace(opened, revision=0)
        if opened != head:
            # Before the bad files are out of sight, or a crash here would forget that something is missing.
            self._write(HEAD, opened)
        for name, data in self.bad.items():
            log.error("set aside the unreadable %s", name)
            if data is not None:
                self._disk.write(f"{name}.bad", data)
                if name != HEAD:
                    self._disk.remove(name)
        return opened

    def _load_record(self, name: str) -> None:
        record = self._load(name, Record)
        if record is not None and f"{record.id}.json" == name:
            self._keep(record)
        elif record is not None:
            self.bad[name] = self._disk.read(name)

    def _load(self, name: str, kind: type[_T]) -> _T | None:
        try:
            data = self._disk.read(name)
        except HostError:
            self.bad[name] = None
            return None
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.bad[name] = data
            return None

    def _keep(self, record: Record) -> None:
        kept, other = (self._gone, self._live) if record.gone else (self._live, self._gone)
        kept[record.id] = record
        other.pop(record.id, None)

    def _put_head(self, **fields: Any) -> None:
        head = msgspec.structs.replace(self._head, **fields)
        self._write(HEAD, head)
        self._head = head

    def _put_facts(self, facts: _Facts) -> None:
        self._write(FACTS, facts)
        self._facts = facts

    def _write(self, name: str, value: Struct) -> None:
        self._disk.write(name, msgspec.json.encode(value))
