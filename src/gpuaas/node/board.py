"""What the agent says about each object, and when it tries again: all that passes leave behind in memory.

A pass speaks for the spec it was started with. Once a newer one is in the journal, nothing it says counts any more.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import HostError
from gpuaas.node.host.interface import READING, differ_in_runtimes
from gpuaas.node.journal import Journal
from gpuaas.node.progress import Progress
from gpuaas.node.record import Applied, Record, Verdict, Version
from gpuaas.node.retry import ATTEMPTS, Retry, after_failure
from gpuaas.wire.node import AllocationBody, Condition, Failure, RuntimeReport, Scrub, Spec

log = logging.getLogger(__name__)

# What an object was converged to; the second half says whether leased keys were let in.
Target = tuple[Version, bool]


@dataclass(frozen=True)
class Trouble:
    """Why an image is not here yet. `final`: it is not coming."""

    code: str
    message: str
    final: bool = False


@dataclass(frozen=True)
class Made:
    """How a machine was left by a pass of this agent that made all of it."""

    body: AllocationBody  # narrowed to the keys that might get in
    host_key: str

    def is_but_for_runtimes(self, body: AllocationBody) -> bool:
        return differ_in_runtimes(self.body, body)


class Board:
    def __init__(self, journal: Journal, clock: Clock) -> None:
        # Called from any thread, without the lock: there may be something to do and to say, or only progress to tell.
        self.on_change: Callable[[], None] = lambda: None
        self.on_progress: Callable[[], None] = lambda: None
        self.conditions: dict[str, Condition] = {}
        self.settled: dict[str, Target] = {}
        self.made: dict[str, Made] = {}
        self.retries: dict[str, Retry] = {}
        self.stale: set[str] = set()  # settled, but something that their runtimes wait for has changed
        self.looks: dict[str, Retry] = {}  # settled, but something failed with their runtimes, which is tried again
        self.troubles: dict[str, Trouble] = {}  # by the digest of an image
        self._journal = journal
        self._clock = clock
        self._lock = journal.lock

    def begin(self, record: Record) -> None:
        """A record was opened or has a new spec. Some conditions need no pass: they follow from the record alone."""
        self.settled.pop(record.id, None)
        self.retries.pop(record.id, None)
        self.looks.pop(record.id, None)
        self.stale.discard(record.id)
        if record.gone and (not record.told or record.told != self._journal.lineage):
            self.conditions[record.id] = gone(record)
        elif record.poisoned and record.failed is not None:
            failure = record.failed.failure
            self.conditions[record.id] = Condition(record.id, *record.failed.version, "failed", failure=failure)

    def current(self, spec: Spec) -> Record | None:
        """The record, unless a newer spec has arrived. Ask with the lock held."""
        record = self._journal.record(spec.id)
        return record if record is not None and record.spec is spec else None

    def moving(self, spec: Spec, progress: Progress) -> bool:
        """Reports how far a pass is. False: it is no longer wanted."""
        with self._lock:
            if self.current(spec) is None:
                return False
            self._converging(spec, progress)
        self.on_progress()
        return True

    def ready(
        self,
        spec: Spec,
        progress: Progress,
        applied: Applied,
        target: Target,
        made: Made,
        runtimes: Iterable[RuntimeReport] = (),
        *,
        again: bool = False,
    ) -> None:
        """`again`: it is, but its runtimes should be tried again."""
        with self._lock:
            record = self.current(spec)
            if record is None:
                return
            if record.applied != applied or record.down:
                self._journal.change(spec.id, applied=applied, down=False)
            self.settled[spec.id] = target
            self.made[spec.id] = made
            self.retries.pop(spec.id, None)
            self._look_later(spec, again)
            told = self._told(spec, runtimes)
            self.conditions[spec.id] = progress.condition("ready", host_key=made.host_key, runtimes=told)

    def runtimes(self, spec: Spec, reports: Iterable[RuntimeReport], *, again: bool) -> None:
        """How they stand now, on a machine of which nothing else has changed."""
        with self._lock:
            if self.current(spec) is None:
                return
            self._look_later(spec, again)
            before = self.conditions.get(spec.id)
            if before is not None and before.state == "ready":
                self.conditions[spec.id] = replace(before, runtimes=self._told(spec, reports))

    def gone(self, spec: Spec, progress: Progress, scrubs: Iterable[Scrub]) -> None:
        with self._lock:
            if self.current(spec) is None:
                return
            # A crash before this line means scrubbing again; after it the evidence is on record with the deletion.
            kept = {"gone": True, "scrubs": list(scrubs), "told": ""}
            self._journal.change(spec.id, applied=None, failed=None, down=False, **kept)
            self.retries.pop(spec.id, None)
            self.conditions[spec.id] = progress.condition("gone", scrubs=scrubs)

    def failed(self, spec: Spec, progress: Progress, failure: Failure, error: Exception) -> None:
        """Decides between trying again and giving up. A tombstone, and what was good once, is never given up."""
        log.warning("%s %s: %s", failure.code, spec.id, error, exc_info=None if _is_host(error) else error)
        with self._lock:
            record = self.current(spec)
            if record is None:
                return
            retry = self.put_off(spec)
            final = retry.count >= ATTEMPTS or (isinstance(error, HostError) and not error.transient)
            if spec.body is None or not final:
                self._converging(spec, progress)
                return
            self.conditions[spec.id] = progress.condition("failed", failure=failure)
            if not record.was_good:
                self._poison(spec, failure)

    def put_off(self, spec: Spec) -> Retry:
        version = (spec.incarnation, spec.generation)
        retry = after_failure(self.retries.get(spec.id), version, self._clock.boottime())
        self.retries[spec.id] = retry
        self.settled.pop(spec.id, None)
        return retry

    def is_stale(self, id: str) -> bool:
        """Whether its runtimes should be looked at now. Ask with the lock held."""
        look = self.looks.get(id)
        return id in self.stale or (look is not None and not look.is_waiting(self._clock.boottime()))

    def told(self, condition: Condition) -> None:
        """The server has this report. A deletion that it knows of is not reported to it again."""
        if condition.state != "gone":
            return
        with self._lock:
            record = self._journal.record(condition.id)
            if record is None or self.conditions.get(condition.id) is not condition:
                return
            if record.told != self._journal.lineage:
                self._journal.change(condition.id, told=self._journal.lineage)
            del self.conditions[condition.id]

    def _look_later(self, spec: Spec, again: bool) -> None:
        if again:
            version = (spec.incarnation, spec.generation)
            self.looks[spec.id] = after_failure(self.looks.get(spec.id), version, self._clock.boottime())
        else:
            self.looks.pop(spec.id, None)

    def _told(self, spec: Spec, reports: Iterable[RuntimeReport]) -> list[RuntimeReport]:
        """What stands in the way of one that is not here yet, or is to be read again first."""
        record = self._journal.record(spec.id)
        unread = spec.body is not None and record is not None and record.repairs < spec.body.repairs
        told = self._with_troubles(spec.body, reports)
        if not unread:
            return told
        return [
            replace(each, state="fetching", code="reading", message=READING) if each.state == "ready" else each
            for each in told
        ]

    def _with_troubles(self, body: AllocationBody | None, reports: Iterable[RuntimeReport]) -> list[RuntimeReport]:
        digests = {(each.bundle, each.version): each.digest for each in body.runtimes} if body else {}
        told = []
        for each in reports:
            trouble = self.troubles.get(digests.get((each.bundle, each.version), ""))
            if each.state == "fetching" and trouble is not None:
                state = "failed" if trouble.final else each.state
                told.append(replace(each, state=state, code=trouble.code, message=trouble.message))
            else:
                told.append(each)
        return told

    def _converging(self, spec: Spec, progress: Progress) -> None:
        before = self.conditions.get(spec.id)
        # What failed after it was good stays failed until it is healed, or it would flap with every retry.
        if before is not None and before.state == "failed" and _is_about(before, spec):
            self.conditions[spec.id] = progress.condition("failed", failure=before.failure)
        else:
            self.conditions[spec.id] = progress.condition("converging")

    def _poison(self, spec: Spec, failure: Failure) -> None:
        try:
            self._journal.change(spec.id, failed=Verdict(spec.incarnation, spec.generation, failure))
        except HostError as error:
            log.error("could not journal the failure of %s, so it is tried again: %s", spec.id, error)
        else:
            self.retries.pop(spec.id, None)


def gone(record: Record) -> Condition:
    return Condition(record.id, *record.version, "gone", scrubs=record.scrubs)


def _is_about(condition: Condition, spec: Spec) -> bool:
    return (condition.incarnation, condition.generation) == (spec.incarnation, spec.generation)


def _is_host(error: Exception) -> bool:
    return isinstance(error, HostError)
