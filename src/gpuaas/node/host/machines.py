"""The running container of an allocation: started by its supervisor, verified, on record, and ended for certain.

    <run>/allocations/<id>/machine.json    what it was started as; written last, so what has none was never started
    <run>/allocations/<id>/bundle/         for the OCI runtime, whose own records are below <run>/runtime

Ending it goes by cgroup: an OCI runtime that was killed does not know what it has left (V7).
"""

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import is_id
from gpuaas.node.host import oci_runtimes, safepath
from gpuaas.node.host.cgroups import cgroup as cgroups
from gpuaas.node.host.cgroups.cgroup import Cgroup
from gpuaas.node.host.cgroups.kill import kill, thaw
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.cgroups.limits import Limits, limit
from gpuaas.node.host.container import seccomp
from gpuaas.node.host.container.boot import Boot
from gpuaas.node.host.container.config import config
from gpuaas.node.host.container.verify import verify
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.supervisor import ending, requests
from gpuaas.node.host.supervisor.plan import Plan

RECORD, BUNDLE = "machine.json", "bundle"
_LAST_WORDS_SECONDS = 1.0
_OWN = "_host"  # the supervisor's cgroup is beside the machine's, and not counted or limited with it
_NAMES = (RECORD, "pid", ending.FILE, "sessions.json", "supervisor.log", requests.SOCKET)
_FILES = (*_NAMES, *(f".{name}" for name in _NAMES))  # whoever was killed may have left what they were writing


class Process(Struct, frozen=True):
    """A number alone may be another process by now."""

    pid: int
    started: int  # clock ticks since the boot

    @property
    def lives(self) -> bool:
        return self.pid > 0 and _started(self.pid) == self.started


class Record(Struct, frozen=True):
    restarts: int
    boot_id: str
    config: str
    at: float  # unix seconds
    first: Process
    supervisor: Process
    cpus: str  # the cpuset
    cpu_limit: float
    memory_bytes: int


@dataclass(frozen=True)
class Start:
    """All that starting takes."""

    boot: Boot
    limits: Limits
    sshd: Sequence[str]
    restarts: int
    boot_id: str
    config: str
    at: float


class Machines:
    def __init__(
        self,
        paths: Paths,
        namespaces: Namespaces,
        layout: Layout,
        prefix: str,
        runtime: str = "",
        *,
        start_seconds: float = 30.0,
    ) -> None:
        self._paths = paths
        self._namespaces = namespaces
        self._layout = layout
        self._prefix = prefix
        self._runtime = runtime
        self._start_seconds = start_seconds
        self._state = paths.run / "runtime"
        self.news = paths.state / "news"

    def runtime(self) -> str:
        """The OCI runtime; unless one was named, the best that is installed, looked for once."""
        self._runtime = self._runtime or oci_runtimes.choose(self._layout)
        return self._runtime

    def cgroup(self, id: str) -> Cgroup:
        return cgroups.cgroup(self._layout, id, self._prefix)

    def record(self, id: str) -> Record | None:
        try:
            return msgspec.json.decode((self._paths.live(id) / RECORD).read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        except OSError as error:
            raise HostError("read", f"the record of {id}", str(error)) from error

    def ended(self, id: str, record: Record) -> str:
        """How, in words. Its supervisor may be about to write it down."""
        live, deadline = self._paths.live(id), time.monotonic() + _LAST_WORDS_SECONDS
        while (said := ending.read(live)) is None and record.supervisor.lives and time.monotonic() < deadline:
            time.sleep(0.005)
        return ending.words(said) if said else ""

    def ids(self) -> set[str]:
        found = {name.removesuffix(_OWN) for name in cgroups.present(self._layout, self._prefix)}
        with suppress(FileNotFoundError):
            found |= {name.removeprefix(safepath.REMOVING) for name in os.listdir(self._state)}
        with suppress(FileNotFoundError):
            live = self._paths.run / "allocations"
            found |= {name for name in os.listdir(live) if (live / name / RECORD).exists()}
        return {name for name in found if is_id(name, name[:2])}

    def left(self, id: str) -> bool:
        """Whether anything is there that a start makes; the same answer as looking for it in `ids`."""
        if self.cgroup(id).exists() or self._own_cgroup(id).exists():
            return True
        places = (self._state / id, self._state / f"{safepath.REMOVING}{id}", self._paths.live(id) / RECORD)
        return any(place.exists() for place in places)

    def start(self, id: str, start: Start, listener: socket.socket) -> None:
        """A machine that does not pass the check of what runs is ended again."""
        live = self._paths.make_live(id)
        self._make_bundle(live, start.boot)
        cgroup = self.cgroup(id)
        cgroup.ensure()
        limit(cgroup, start.limits)
        record = self._supervise(id, start, listener, adopt=0)
        try:
            verify(record.first.pid, start.boot, self._layout)
        except HostError:
            self.stop(id, "it was not what was asked for", 0)
            raise
        self._write(live, record)

    def adopt(self, id: str, start: Start, listener: socket.socket) -> bool:
        """A machine that runs as it should, but whose supervisor has died: nobody inside has noticed or should."""
        record = self.record(id)
        if record is None or record.boot_id != start.boot_id or not record.first.lives:
            return False
        if (record.restarts, record.config) != (start.restarts, start.config):
            return False
        adopted = self._supervise(id, start, listener, adopt=record.first.pid)
        self._write(self._paths.live(id), replace(adopted, at=record.at, cpus=record.cpus))
        return True

    def stop(self, id: str, reason: str, grace_seconds: float) -> None:
        live, both = self._paths.live(id), (self._own_cgroup(id), self.cgroup(id))
        for cgroup in both:
            thaw(cgroup)  # an agent that was killed while it did this may have left it frozen, and deaf
        with suppress(HostError):  # whatever it says, everything is ended below
            requests.ask(live, requests.Stop(reason, grace_seconds))
        for cgroup in both:
            kill(cgroup)
            cgroup.remove()
        if self._state.is_dir():
            safepath.remove_tree(self._state, id)
        if live.is_dir():
            safepath.remove_tree(live, BUNDLE)
            for name in _FILES:
                with asking("remove", live / name), suppress(FileNotFoundError):
                    (live / name).unlink()

    def clear(self) -> None:
        cgroups.remove_prefix(self._layout, self._prefix)
        for directory in (self._state, self._paths.run / "allocations"):
            with suppress(OSError):
                directory.rmdir()

    def _own_cgroup(self, id: str) -> Cgroup:
        return cgroups.cgroup(self._layout, f"{id}{_OWN}", self._prefix)

    def _make_bundle(self, live: Path, boot: Boot) -> None:
        with asking("write", f"the bundle of {live.name}"):
            (live / BUNDLE).mkdir(mode=0o700, exist_ok=True)
            self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
            (live / BUNDLE / "config.json").write_bytes(msgspec.json.encode(config(boot)))

    def _supervise(self, id: str, start: Start, listener: socket.socket, adopt: int) -> Record:
        live = self._paths.live(id)
        self.news.mkdir(mode=0o700, parents=True, exist_ok=True)
        pid_file = str(live / "pid")
        runtime = [self.runtime(), "--root", str(self._state), "run", "--detach", "--pid-file", pid_file]
        plan = Plan(
            id=id,
            live=str(live),
            news=str(self.news),
            cgroup=self.cgroup(id).path,
            own_cgroup=self._own_cgroup(id).path,
            runtime=[*runtime, "--bundle", str(live / BUNDLE), id],
            pid_file=pid_file,
            sshd=list(start.sshd),
            program=seccomp.program(),
            start_seconds=self._start_seconds,
            adopt=adopt,
        )
        started = self._namespaces.supervise(id, plan, listener.fileno())
        if started.pid == 0:
            self.stop(id, "it could not be started", 0)
            raise HostError("start", id, started.error or "the supervisor ended before it answered")
        first, supervisor = _process(started.pid), _process(started.supervisor)
        if first is None or supervisor is None:
            self.stop(id, "it ended at once", 0)
            raise HostError("start", id, "it ended as soon as it was started")
        limits = start.limits
        return Record(
            start.restarts,
            start.boot_id,
            start.config,
            start.at,
            first,
            supervisor,
            limits.cpuset or "",
            limits.cpus or 0.0,
            limits.memory_bytes or 0,
        )

    def _write(self, live: Path, record: Record) -> None:
        with asking("write", live / RECORD):
            aside = live / f".{RECORD}"
            aside.write_bytes(msgspec.json.encode(record))
            os.rename(aside, live / RECORD)


def _process(pid: int) -> Process | None:
    started = _started(pid)
    return None if started is None else Process(pid, started)


def _started(pid: int) -> int | None:
    """None: it is gone, or a zombie, which is the same."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
