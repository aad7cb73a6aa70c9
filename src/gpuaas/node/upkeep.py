"""Looks after the images of runtimes while nobody waits for anything: throws away what is no longer needed, reads
everything again from time to time, and has what is damaged fetched anew.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gpuaas.kit.clock import Clock
from gpuaas.node.board import Trouble
from gpuaas.node.runner import Runner

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
TIDY_SECONDS = 30.0
UNUSED_SECONDS = 3600.0  # for whoever takes the same runtime again; while the disk is nearly full nobody is waited for
SCRUB_SECONDS = 24 * 3600.0
_DAMAGED = Trouble("image_damaged", "Its image has changed on the node's disk. It is being fetched again.")


@dataclass
class Upkeep:
    runner: Runner
    clock: Clock
    unused_seconds: float = UNUSED_SECONDS
    scrub_seconds: float = SCRUB_SECONDS
    stopped: threading.Event = field(default_factory=threading.Event)
    _unused: dict[str, float] = field(default_factory=dict)  # image: since when

    def tidy(self) -> list[str]:
        """What was thrown away. Versions that somebody ran are taken away after them."""
        self.runner.look_again(self.runner.host.runtimes_busy())
        if self.runner.host.images_low():
            return self.make_room()
        here, used, now = self.runner.host.images(), self.runner.images_used(), self.clock.boottime()
        self._unused = {digest: self._unused.get(digest, now) for digest in here if digest not in used}
        kept = {digest for digest, since in self._unused.items() if now - since < self.unused_seconds}
        if set(self._unused) == kept:
            return []
        return self._removed(set(used) | kept)

    def make_room(self) -> list[str]:
        """Now: somebody needs it."""
        return self._removed(set())

    def read_again(self) -> list[str]:
        """All that somebody waits for. The digests of those that were damaged: they are fetched anew."""
        return [*self._changed(), *self._repaired()]

    def read_slowly(self) -> str | None:
        """One image, if one should be read. Its digest, if it was damaged."""
        return self.read_behind() or self.scrub()

    def read_behind(self) -> str | None:
        """One image that a machine got unread, unless somebody waits for another. Its digest, if it was damaged."""
        digest = next(iter(self.runner.host.images_unread()), None)
        return None if digest is None or self._is_intact(digest, self._may_go_slowly, gently=True) else digest

    def _changed(self) -> list[str]:
        """Images whose files are not as they were when they were last read."""
        waited_for = [digest for digest, waited in self.runner.host.images_unread().items() if waited]
        return [digest for digest in waited_for if not self._is_intact(digest, self._may_go_on)]

    def _repaired(self) -> list[str]:
        """For every repair that was asked for."""
        damaged = []
        for id, repairs, digests in self.runner.unread():
            here = self.runner.host.images()
            damaged += [each for each in digests if each in here and not self._is_intact(each, self._may_go_on)]
            if not self.stopped.is_set():
                self.runner.were_read(id, repairs)
        return damaged

    def scrub(self) -> str | None:
        """Reads one image, if it is time for one. The digest of one that was damaged."""
        before = self.clock.now().timestamp() - self.scrub_seconds
        found = self.runner.host.image_scrub(before, self._may_go_slowly)
        if found is not None:
            self._say(found)
        return found

    def _is_intact(self, digest: str, go_on: Callable[[], bool], *, gently: bool = False) -> bool:
        """Reads it, if it may go on. Whoever waits for that is looked at, whoever had it read."""
        if not self.runner.host.image_check(digest, go_on, gently=gently):
            self._say(digest)
            return False
        if digest not in self.runner.host.images_unread():
            self.runner.look_again(self.runner.images_used().get(digest, []))
        return True

    def _say(self, damaged: str) -> None:
        log.error("image %s was damaged on this node's disk; it is fetched again", damaged)
        self.runner.fetched(damaged, self.runner.images_used().get(damaged, []), _DAMAGED)

    def _may_go_on(self) -> bool:
        return not self.stopped.is_set()

    def _may_go_slowly(self) -> bool:
        """What nobody waits for is begun anew when somebody waits for something else."""
        return self._may_go_on() and not any(self.runner.host.images_unread().values()) and not self.runner.unread()

    def _removed(self, kept: set[str]) -> list[str]:
        """What a spec names stays too, also if it came just now."""
        removed = self.runner.host.images_tidy(lambda digest: digest in kept or digest in self.runner.images_used())
        if removed:
            log.info("images that nobody uses were removed: %s", ", ".join(removed))
        return removed


async def keep_up(upkeep: Upkeep, every_seconds: float = EVERY_SECONDS, tidy_seconds: float = TIDY_SECONDS) -> None:
    """Until cancelled. What takes minutes, and nobody waits for, has a thread of its own."""
    tidied = upkeep.clock.boottime()
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(2, thread_name_prefix="upkeep")
    slow: asyncio.Future[str | None] | None = None
    try:
        while True:
            await asyncio.sleep(every_seconds)
            await _tried(loop.run_in_executor(pool, upkeep.read_again))
            if slow is None or slow.done():
                if slow is not None:
                    await _tried(slow)
                slow = loop.run_in_executor(pool, upkeep.read_slowly)
            if upkeep.clock.boottime() - tidied >= tidy_seconds:
                tidied = upkeep.clock.boottime()
                await _tried(loop.run_in_executor(pool, upkeep.tidy))
    finally:
        upkeep.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


async def _tried(work: Awaitable[object]) -> None:
    """Each on its own: where a full disk keeps images from being read, throwing others away is what helps."""
    try:
        await work
    except Exception:  # the outer loop: it is tried again
        log.exception("could not look after the images of runtimes")
