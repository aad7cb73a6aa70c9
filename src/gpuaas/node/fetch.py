"""Fetches images of runtimes by digest, goes on where it was cut off, and has machines looked at.

A registry is asked first where there is one (node/depot.py), and the server for whatever it does not give.

No machine waits for it. What arrives is checked by the host before it has a name.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import HostError, Problem
from gpuaas.node import refusal
from gpuaas.node.board import Trouble
from gpuaas.node.depot import Depot
from gpuaas.node.runner import Missing, Runner
from gpuaas.node.servers import Servers
from gpuaas.wire import node_request

log = logging.getLogger(__name__)

AT_ONCE = 2
CHUNK_BYTES = 1 << 20
PROGRESS_SECONDS = 1.0  # between two words about how far it has come
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
REFUSALS = 4  # of one image, before its machines hear that it is not coming
NOT_HERE, NOT_HERE_SECONDS = "image_not_here", 300.0  # the server's word for it, and how long it may get it back
_PATIENCE_SECONDS = 10.0

Signed = Callable[[str, str, int], str]  # method, path, unix seconds


class _Gone(Exception):
    """Nobody wants it any more, or the agent ends."""


class _Refused(Exception):
    """The server, or what it sent, says no; it may say so again."""


class _Changed(Exception):
    """What has arrived of it was removed, or is more than we know of."""


class _Missing(Exception):
    """The server does not have it."""


@dataclass
class _Pause:
    until: float
    seconds: float
    refusals: int
    missing_since: float | None  # when the server first said that it does not have it


@dataclass
class Fetcher:
    """`make_room` throws away what nobody needs, and is asked when the disk is too full."""

    runner: Runner
    servers: Servers
    sign: Signed
    clock: Clock
    bytes_per_second: float = 0  # 0: as fast as it comes
    make_room: Callable[[], object] = lambda: None
    depot: Depot | None = None
    sleep: Callable[[float], None] = time.sleep
    stopped: threading.Event = field(default_factory=threading.Event)
    _pauses: dict[str, _Pause] = field(default_factory=dict)
    _asides: dict[str, str] = field(default_factory=dict)  # by digest: why the registry does not send it

    def due(self) -> list[Missing]:
        """What can be tried now."""
        missing, now = self.runner.missing(), self.clock.boottime()
        for digest in set(self._pauses) - {each.digest for each in missing}:
            self._pauses.pop(digest, None)
        if self.depot is not None:
            self.depot.forget_but({each.digest for each in missing})
        return [each for each in missing if each.digest not in self._pauses or self._pauses[each.digest].until <= now]

    def fetch(self, missing: Missing) -> None:
        """One try. Whatever comes of it, its machines hear of it."""
        digest = missing.digest
        try:
            self._fetch(missing)
        except _Gone:
            return
        except _Refused as error:
            pause = self._put_off(digest, refused=True)
            said = f"{error} It is tried again."
            trouble = Trouble("fetch_refused", said, final=pause.refusals >= REFUSALS)
        except _Missing as error:
            pause = self._put_off(digest, missing=True)
            final = self.clock.boottime() - (pause.missing_since or 0.0) >= NOT_HERE_SECONDS
            trouble = Trouble(NOT_HERE, f"{error} It is tried again.", final)
        except _Changed:
            self._put_off(digest)
            trouble = Trouble("fetched_again", "What had come of its image was removed meanwhile. It comes again.")
        except HostError as error:
            self._put_off(digest)
            log.warning("image %s: %s", digest, error)
            trouble = Trouble("node_disk", f"The node cannot keep its image: {error.cause}.", final=True)
        except (URLError, HTTPException, OSError) as error:
            self._put_off(digest)
            log.info("image %s: %s", digest, error)
            trouble = Trouble("server_unreachable", "The server does not send its image just now. It is tried again.")
        else:
            self._pauses.pop(digest, None)
            log.info("image %s is here", digest)
            self.runner.fetched(digest, missing.ids)
            return
        finally:
            aside = self._asides.pop(digest, "")
        message = f"{aside} {trouble.message}".strip()
        self.runner.fetched(digest, missing.ids, replace(trouble, message=message))

    def _fetch(self, missing: Missing) -> None:
        try:
            self._copy(missing)
        except HostError as error:
            log.info("image %s: %s; room is made", missing.digest, error)
            self.make_room()
            if missing.digest not in self.runner.host.images():  # all of it was here, and its stamp failed
                self._copy(missing)

    def _copy(self, missing: Missing) -> None:
        """Goes on from what is here."""
        host, digest, size = self.runner.host, missing.digest, missing.size
        offset = host.image_begin(digest, size)
        if offset < size and self.depot is not None:
            offset = self._from_depot(self.depot, missing, offset)
        if offset < size:
            with self._opened(digest, offset) as answer:
                self._take(answer, missing, offset)
        if host.image_end(digest):
            return
        if self.depot is None or not self.depot.was_wrong(digest):
            raise _Refused("What the server sent is not the image that was asked for.")
        self._copy(missing)

    def _from_depot(self, depot: Depot, missing: Missing, offset: int) -> int:
        """How much is here afterwards."""
        why, here = depot.why_not(missing.digest), offset
        if not why:
            try:
                with depot.opened(missing.digest, offset) as answer:
                    self._take(answer, missing, offset)
                return missing.size
            except (_Refused, Problem, HTTPException, OSError, ValueError) as error:  # whatever it answers, to no avail
                here = self.runner.host.image_begin(missing.digest, missing.size)
                why = depot.failed(missing.digest, error, came=here > offset)
        self._asides[missing.digest] = why
        self._tell(missing.digest)
        return here

    def _take(self, answer: HTTPResponse, missing: Missing, offset: int) -> None:
        """All that is still missing, from `offset` on."""
        _skip(answer, offset)
        digest, size = missing.digest, missing.size
        told = begun = self.clock.boottime()
        came = 0
        while offset < size and (data := answer.read(min(CHUNK_BYTES, size - offset))):
            if not self.runner.host.image_append(digest, offset, data):
                raise _Changed
            offset, came = offset + len(data), came + len(data)
            if self.stopped.is_set():
                raise _Gone
            if self.clock.boottime() - told >= PROGRESS_SECONDS:
                told = self.clock.boottime()
                self._tell(digest)
            self._pace(came, begun)
        if offset < size:
            raise ConnectionError(f"it ended after {offset} of {size} bytes")

    @contextmanager
    def _opened(self, digest: str, offset: int) -> Iterator[HTTPResponse]:
        path, at = node_request.image_path(digest), int(self.clock.now().timestamp())
        headers = {
            node_request.NODE: self.runner.journal.node_id or "",
            node_request.TIME: str(at),
            node_request.SIGNATURE: self.sign("GET", path, at),
            "Range": f"bytes={offset}-",
        }
        opener = build_opener(ProxyHandler({})) if self.servers.is_here else build_opener()  # no proxy to ourselves
        request = Request(self.servers.url + path, headers=headers)  # noqa: S310 see AgentConfig
        try:
            with opener.open(request, timeout=_PATIENCE_SECONDS) as answer:
                yield answer
        except HTTPError as refused:
            with refused:
                why = refusal.said(refused)
                if why.code == NOT_HERE:
                    raise _Missing(why.text) from refused
                if refused.code >= 500 or refused.code == 429:
                    raise
                reason = f": {why.text}" if why.text else f" (it answered {refused.code})."
                raise _Refused(f"The server does not give its image away{reason}") from refused

    def _tell(self, digest: str) -> None:
        waiting = [each for each in self.runner.missing() if each.digest == digest]
        if not waiting:
            raise _Gone
        aside = self._asides.get(digest)
        self.runner.fetched(digest, waiting[0].ids, Trouble("from_server", aside) if aside else None)

    def _pace(self, came: int, begun: float) -> None:
        if self.bytes_per_second:
            ahead = came / self.bytes_per_second - (self.clock.boottime() - begun)
            if ahead > 0:
                self.sleep(ahead)

    def _put_off(self, digest: str, *, refused: bool = False, missing: bool = False) -> _Pause:
        before = self._pauses.get(digest)
        seconds = min(LONGEST_PAUSE_SECONDS, before.seconds * 2) if before else FIRST_PAUSE_SECONDS
        refusals = (before.refusals if before else 0) + refused
        now = self.clock.boottime()
        since = before.missing_since if before and before.missing_since is not None else now if missing else None
        self._pauses[digest] = _Pause(now + seconds, seconds, refusals, since)
        return self._pauses[digest]


def _skip(answer: HTTPResponse, offset: int) -> None:
    """A server, or something on the way, that does not know ranges sends everything from the beginning."""
    if answer.status == 206:
        start = (answer.headers.get("Content-Range") or "").removeprefix("bytes ").partition("-")[0]
        if start != str(offset):
            raise _Refused("Another part of the image was sent than was asked for.")
        return
    while offset > 0 and (data := answer.read(min(CHUNK_BYTES, offset))):
        offset -= len(data)


async def keep_fetching(fetcher: Fetcher, pause_seconds: float = 1.0) -> None:
    """Until cancelled. A download that is cut off by the end of the agent goes on with the next one."""
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch")
    busy: dict[str, asyncio.Future[None]] = {}
    try:
        while True:
            for digest in [digest for digest, task in busy.items() if task.done()]:
                if error := busy.pop(digest).exception():  # the outer loop: one must never stop the others
                    log.error("could not fetch an image", exc_info=error)
            for missing in await asyncio.to_thread(fetcher.due):
                if len(busy) < AT_ONCE and missing.digest not in busy:
                    busy[missing.digest] = loop.run_in_executor(pool, fetcher.fetch, missing)
            await asyncio.sleep(pause_seconds)
    finally:
        fetcher.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
