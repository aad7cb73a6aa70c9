"""Makes the machine look like its specs, one object and one pass at a time, from any starting point.

Synchronous, without threads of its own. Several threads may converge different objects at once, never the same one.
The journal's lock guards all state; it is never held while the host is asked to do something.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import HostError
from gpuaas.node.accept import accept
from gpuaas.node.board import Board, Target, Trouble, gone
from gpuaas.node.bring_up import bring_up, limit_access, look_again
from gpuaas.node.host.interface import Host
from gpuaas.node.journal import Journal
from gpuaas.node.lanes import Lanes, in_turn
from gpuaas.node.lease import Lease
from gpuaas.node.progress import Progress, clip
from gpuaas.node.record import Record
from gpuaas.node.steps import STEPS, TEARDOWN
from gpuaas.node.steps.access import has_leased_keys, without_leased_keys
from gpuaas.node.take_down import take_down
from gpuaas.node.validate import is_named, refusal
from gpuaas.wire.node import AllocationBody, Condition, Failure, Holding, Spec, Specs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Missing:
    """An image that is not here, and the machines that wait for it."""

    digest: str
    size: int
    ids: tuple[str, ...]


class Runner:
    """`lanes` says how what may be done at the same time is done."""

    def __init__(self, host: Host, journal: Journal, clock: Clock, lanes: Lanes = in_turn) -> None:
        self.host = host
        self.journal = journal
        self.clock = clock
        self.lease = Lease(clock)
        self._lanes = lanes
        self._board = Board(journal, clock)
        self._lock = journal.lock
        for record in (*journal.live(), *journal.gone()):
            self._board.begin(record)
        try:
            self._record_boot()
        except HostError as error:
            log.error("could not journal that the host was rebooted; the next agent will: %s", error)

    def on_change(self, call: Callable[[], None], progress: Callable[[], None]) -> None:
        """`call` is called from any thread whenever there may be news to report or work to do.

        `progress` is called when only a pass got further: often, and whoever is told can wait a moment.
        """
        self._board.on_change, self._board.on_progress = call, progress

    # from the server

    def receive(self, specs: Specs) -> None:
        """A batch of another store, or one that would leave a gap, is dropped; the next heartbeat asks for it."""
        if specs.store_id != self.journal.store_id or specs.base > self.journal.revision:
            return
        try:
            for spec in specs.specs:
                self._accept(spec)
            self._board.on_change()  # whoever makes them need not wait for the next line
            self.journal.advance(specs.upto)
        except HostError as error:
            # The revision stays where it was, so the server sends the rest again.
            log.error("could not journal specs: %s", error)
            self._board.on_change()

    def renew(self, sent_at: float, seconds: float) -> None:
        """The server acknowledged a heartbeat: with a lease that had ended, keys are let in again."""
        held = self.lease.held()
        self.lease.renew(sent_at, seconds)
        if self.lease.held() and not held:
            self._board.on_change()

    def told(self, condition: Condition) -> None:
        """The server acknowledged a report with this condition."""
        self._board.told(condition)

    # what there is to do

    def wanted(self) -> list[str]:
        """The objects that need a pass now."""
        now = self.clock.boottime()
        with self._lock:
            return [record.id for record in self.journal.live() if self._needs_pass(record, now)]

    def is_wanted(self, id: str) -> bool:
        """Whether it should be there, or go."""
        record = self.journal.record(id)
        return record is not None and record.spec is not None and record.spec.body is not None

    def due(self) -> float | None:
        """The boottime at which `wanted` may name more without any event: a retry, or the end of the lease.

        Runtimes that failed are tried again too, whenever somebody asks next: no machine waits for them.
        """
        now = self.clock.boottime()
        with self._lock:
            times = [retry.at for retry in self._board.retries.values()]
        if self.lease.until is not None:
            times.append(self.lease.until)
        return min((time for time in times if time > now), default=None)

    def converge(self, id: str) -> None:
        """One whole pass over one object. Ends early when a newer spec arrives meanwhile."""
        record = self.journal.record(id)
        if record is None or record.gone or record.spec is None:
            return
        spec = record.spec
        progress = Progress(spec, [step.name for step in (STEPS if spec.body else TEARDOWN)], self.clock)
        try:
            self._pass(record, spec, progress)
        except HostError as error:
            # Steps are handled one by one; what arrives here is the journal's disk, or a host that cannot be read.
            failure = Failure("node_failed", "The node could not do its own bookkeeping.", clip(str(error)))
            self._board.failed(spec, progress, failure, error)
        self._board.on_change()

    # images of runtimes

    def missing(self) -> list[Missing]:
        """Images that machines should have and this node has not, in the order in which they were asked for."""
        asked = [
            (each.applied_at, record.id, each)
            for record in self.journal.live()
            if record.spec is not None and record.spec.body is not None and not record.poisoned
            for each in record.spec.body.runtimes
        ]
        here = self.host.images() if asked else {}
        sizes: dict[str, int] = {}
        waiting: dict[str, list[str]] = {}
        for _, id, each in sorted(asked, key=lambda one: one[:2]):
            if each.digest not in here:
                sizes[each.digest] = each.size
                waiting.setdefault(each.digest, []).append(id)
        with self._lock:
            for digest in set(self._board.troubles) - set(waiting):
                del self._board.troubles[digest]
        return [Missing(digest, sizes[digest], tuple(dict.fromkeys(ids))) for digest, ids in waiting.items()]

    def images_used(self) -> dict[str, list[str]]:
        """Every image that a spec names, and for which machines."""
        used: dict[str, list[str]] = {}
        for record in self.journal.live():
            for each in record.spec.body.runtimes if record.spec is not None and record.spec.body is not None else []:
                used.setdefault(each.digest, []).append(record.id)
        return used

    def unread(self) -> list[tuple[str, int, list[str]]]:
        """Machines whose images should be read again, the count that this was asked for, and the images."""
        return [
            (record.id, record.spec.body.repairs, [each.digest for each in record.spec.body.runtimes])
            for record in self.journal.live()
            if record.spec is not None and record.spec.body is not None and record.repairs < record.spec.body.repairs
        ]

    def were_read(self, id: str, repairs: int) -> None:
        with self._lock:
            if self.journal.record(id) is not None:
                self.journal.change(id, repairs=repairs)
        self.look_again([id])

    def look_again(self, ids: Iterable[str]) -> None:
        """At the runtimes of these."""
        with self._lock:
            known = {id for id in ids if self.journal.record(id) is not None}
            self._board.stale |= known
        if known:
            self._board.on_change()

    def fetched(self, digest: str, ids: Iterable[str], trouble: Trouble | None = None) -> None:
        """Something has happened to an image: these machines are looked at again."""
        with self._lock:
            if trouble is None:
                self._board.troubles.pop(digest, None)
            else:
                self._board.troubles[digest] = trouble
        self.look_again(ids)

    # what is there

    def observe(self) -> None:
        """Puts news on record, and looks for machines that stopped by themselves or with the host."""
        try:
            self.journal.keep_revision()
            self._record_news()
        except HostError as error:
            log.warning("could not put on record what happened: %s", error)
        for record in self.journal.live():
            try:
                self._look(record)
            except HostError as error:
                log.warning("could not look at %s: %s", record.id, error)
        if self.wanted():
            self._board.on_change()

    def rest(self) -> None:
        """While nothing is wanted."""
        if not self.wanted():
            self.host.rest()

    def conditions(self) -> list[Condition]:
        """The newest condition of every object, without the deletions that the server knows of."""
        with self._lock:
            return list(self._board.conditions.values())

    def holdings(self) -> list[Holding]:
        """All that the journal knows, deleted objects too."""
        with self._lock:
            return [record.holding for record in (*self.journal.live(), *self.journal.gone())]

    def unknown(self) -> list[Holding]:
        """On the host, but not in the journal. Reported and kept: nobody asked for their deletion."""
        known = {record.id for record in self.journal.live()}
        present = self.host.present()
        # Once more, because objects come and go while the host is looked at.
        known |= {record.id for record in self.journal.live()}
        found = []
        for id in (part.id for part in present if part.id not in known):
            machine = self.host.container(id)
            found.append(Holding(id, 0, 0, machine.restarts if machine else 0, []))
        return found

    def _record_boot(self) -> None:
        """A reboot ends sessions without a word, and is no death of a machine that was down or on its way anyway."""
        boot_id = self.host.boot_id()
        if boot_id == self.journal.boot_id:
            return
        self._record_news()  # who had come before it
        for record in self.journal.live() if self.journal.boot_id else []:
            if record.applied is None or record.down:
                self.journal.add_fact("rebooted", record.id, self.clock.now().timestamp(), {"boot": boot_id})
        self.journal.booted(boot_id)

    def _record_news(self) -> None:
        """A crash between the two lines tells it again; the session's id says that it is the same."""
        news = self.host.news()
        for one in news:
            self.journal.add_fact(one.kind, one.id, one.at, one.data)
        if news:
            self.host.forget(news)
            self._board.on_change()

    def _accept(self, spec: Spec) -> None:
        if not is_named(spec):
            log.error("dropped a spec that names no object: %r", spec.id)
            return
        with self._lock:
            record = self.journal.record(spec.id)
            accepted = accept(record, spec, self.journal.lineage, refusal(spec))
            if accepted is not None:
                self.journal.put(accepted)
                self._board.begin(accepted)
            elif record is not None and record.gone:
                self._board.conditions.setdefault(record.id, gone(record))  # asked again: the server does not know

    def _needs_pass(self, record: Record, now: float) -> bool:
        if record.spec is None:
            return False
        retry = self._board.retries.get(record.id)
        if retry is not None and retry.is_waiting(now):
            return False
        body = record.spec.body
        if body is None:
            return True
        if record.poisoned and (self.lease.held() or not has_leased_keys(body)):
            return False
        settled = self._board.settled.get(record.id) == self._target(record.spec, body)
        return not settled or self._board.is_stale(record.id)

    def _target(self, spec: Spec, body: AllocationBody) -> Target:
        return (spec.incarnation, spec.generation), self.lease.held() and has_leased_keys(body)

    def _pass(self, record: Record, spec: Spec, progress: Progress) -> None:
        if spec.body is None:
            self._board.made.pop(spec.id, None)
            take_down(self.host, self._board, spec, record.intent.gpus if record.intent else [], progress)
            return
        target = self._target(spec, spec.body)
        body = spec.body if target[1] else without_leased_keys(spec.body)
        with self._lock:
            stale = self._board.is_stale(spec.id)
            self._board.stale.discard(spec.id)
        if not record.poisoned:
            self._look(record)
            if stale and self._board.settled.get(spec.id) == target:
                look_again(self.host, self._board, spec, body)
                return
            made = self._board.made.pop(spec.id, None)  # until it is made again, nothing is certain
            if record.applied is None or body.stopped:
                made = None  # nobody has looked whether it runs
            bring_up(self.host, self._board, spec, body, target, progress, self._lanes, made)
        elif not target[1]:
            self._board.made.pop(spec.id, None)
            # Nothing else is done for a version that failed, but the end of a lease still closes what it must.
            closed = limit_access(self.host, spec.id, body)
            with self._lock:
                if closed:
                    self._board.settled[spec.id] = target
                else:
                    self._board.put_off(spec)

    def _look(self, record: Record) -> None:
        """A machine that should run and does not: one fact for each death, and a pass for every look."""
        if record.applied is None or record.spec is None or record.spec.body is None or record.spec.body.stopped:
            return
        machine = self.host.container(record.id)
        if machine is not None and machine.running:
            return
        # First who had come: the order of the journal says who was on the machine when it ended, not the clock.
        self._record_news()
        reason = "died" if record.applied.boot_id == self.host.boot_id() else "reboot"
        with self._lock:
            self._board.settled.pop(record.id, None)
            self._board.made.pop(record.id, None)
            if self.journal.record(record.id) is not record or record.down:
                return
            # The number makes it the same fact again when the agent dies between these two lines.
            data = {"death": str(record.deaths + 1), "reason": reason, "generation": str(record.applied.generation)}
            if machine is not None and machine.ended:
                data["ended"] = machine.ended
            self.journal.add_fact("exited", record.id, self.clock.now().timestamp(), data)
            self.journal.change(record.id, down=True, deaths=record.deaths + 1)
