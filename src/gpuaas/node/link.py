"""The agent's end of the node link as a state machine: frames in, frames out, no I/O and no time of its own.

    down --connected()--> waiting --Challenge--> greeting --Welcome--> syncing --every Holdings acknowledged--> open
                                                     \\-----Welcome(synced)------------------------------------^

What does not fit the state is dropped: a late, doubled or reordered frame does no harm. `broken` says that this
connection is of no more use and that the caller has to make another one.
"""

import logging
from collections.abc import Callable

from gpuaas.kit import traces
from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import HostError
from gpuaas.node.batch import batches
from gpuaas.node.journal import Journal
from gpuaas.node.outbox import RESEND_SECONDS, Outbox
from gpuaas.node.runner import Runner
from gpuaas.wire import node as wire
from gpuaas.wire.node import FromAgent, FromServer, Holdings, Sample

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 3.0
SILENCE_SECONDS = 15.0  # a server that says nothing for so long is not there, whatever TCP thinks
REMEMBERED_HEARTBEATS = 64


class Link:
    """`dial` is told when somebody wants a stream to one of the machines; neither it nor `notice` may block."""

    def __init__(
        self,
        runner: Runner,
        journal: Journal,
        sign: Callable[[str], str],
        clock: Clock,
        version: str,
        dial: Callable[[wire.Dial], None] | None = None,
        notice: Callable[[wire.Notice], None] | None = None,
    ) -> None:
        self.state = "down"
        self.broken = False
        self._runner = runner
        self._journal = journal
        self._sign = sign
        self._clock = clock
        self._version = version
        self._dial = dial
        self._notice = notice
        self._outbox = Outbox(runner, journal, clock)
        self._seq = 0  # never starts again while this process lives, so that an old Ack never fits a new frame
        self._epoch = 0
        self._heard_at = 0.0
        self._heartbeat_at = 0.0
        self._heartbeats: dict[int, float] = {}  # when each was sent
        self._store_id = ""  # the store that is being synced with
        self._holdings: list[Holdings] = []  # not acknowledged yet; the first one is on its way
        self._holdings_at = 0.0
        self._samples: list[Sample] = []  # not sent yet

    def connected(self) -> None:
        self._become("waiting")
        self.broken = False
        self._heard_at = self._clock.boottime()
        self._heartbeats.clear()
        self._holdings.clear()
        self._samples = []

    def disconnected(self) -> None:
        self._become("down")

    def sampled(self, samples: list[Sample]) -> None:
        """From any thread. The next `poll` sends them; without an open link they are dropped for good."""
        if self.state == "open":
            self._samples = samples

    def receive(self, frame: FromServer) -> list[FromAgent]:
        """What to answer at once."""
        if self.broken or self.state == "down":
            return []
        self._heard_at = self._clock.boottime()
        try:
            return self._receive(frame)
        except HostError as error:
            log.error("the link cannot go on: %s", error)
            self.broken = True
            return []

    def poll(self) -> list[FromAgent]:
        """What to send now: because it is new, because it is time, or because nobody acknowledged it."""
        if self.broken or self.state == "down":
            return []
        now = self._clock.boottime()
        if now - self._heard_at >= SILENCE_SECONDS:
            self.broken = True
            return []
        if self.state == "syncing" and now - self._holdings_at >= RESEND_SECONDS:
            return self._send_holdings()
        if self.state != "open":
            return []
        return self._talk(now)

    def due(self) -> float:
        """The boottime at which `poll` has something to do without any event."""
        if self.state == "open":
            return min(self._heartbeat_at, self._outbox.due or self._heartbeat_at)
        return self._holdings_at + RESEND_SECONDS if self.state == "syncing" else self._heard_at + SILENCE_SECONDS

    def _receive(self, frame: FromServer) -> list[FromAgent]:
        match frame:
            case wire.Challenge() if self.state == "waiting":
                return [self._hello(frame.nonce)]
            case wire.Welcome() if self.state == "greeting":
                return self._welcome(frame)
            case wire.Specs() if self.state == "open":
                if frame.base > self._journal.revision:
                    self._heartbeat_at = self._clock.boottime()  # ask for what is missing
                self._runner.receive(frame)
                return self.poll()
            case wire.Dial() if self.state == "open" and self._dial is not None:
                self._dial(frame)
            case wire.Notice() if self.state == "open" and self._notice is not None:
                self._notice(frame)
            case wire.Ack():
                return self._acknowledged(frame)
            case wire.Fenced():
                log.warning("fenced by the server: %s", frame.reason)
                self.broken = True
        return []

    def _hello(self, nonce: str) -> FromAgent:
        journal, host = self._journal, self._runner.host
        if journal.node_id is None:
            raise HostError("greet", "the server", "this node has not joined", transient=False)
        inventory = host.inventory()
        self._outbox.reset(inventory)
        self._become("greeting")
        return wire.Hello(
            wire.PROTOCOL,
            journal.node_id,
            self._sign(nonce),
            self._version,
            journal.incarnation,
            host.boot_id(),
            journal.store_id,
            journal.revision,
            inventory,
            traces.enabled(),
            runtimes=True,
            scrubs=True,
        )

    def _welcome(self, welcome: wire.Welcome) -> list[FromAgent]:
        self._epoch = welcome.epoch
        if not welcome.synced:
            self._store_id = welcome.store_id
            self._holdings = self._inventoried()
            self._become("syncing")
            return self._send_holdings()
        if welcome.store_id != self._journal.store_id:
            log.error("the server takes this node for synced with a store that it has never followed")
            self.broken = True
            return []
        return self._open()

    def _inventoried(self) -> list[Holdings]:
        known = self._runner.holdings()
        ids = {holding.id for holding in known}
        known += [holding for holding in self._runner.unknown() if holding.id not in ids]
        chunks = list(batches(known)) or [[]]
        last = len(chunks) - 1
        return [
            Holdings(self._next_seq(), self._epoch, self._store_id, chunk, final=i == last)
            for i, chunk in enumerate(chunks)
        ]

    def _send_holdings(self) -> list[FromAgent]:
        """One at a time, so that the final one is also the last to arrive."""
        self._holdings_at = self._clock.boottime()
        return [self._holdings[0]]

    def _acknowledged(self, ack: wire.Ack) -> list[FromAgent]:
        if self.state == "syncing" and ack.seq == self._holdings[0].seq:
            if len(self._holdings) > 1:
                self._holdings.pop(0)
                return self._send_holdings()
            # Only now is it safe to follow this store: it knows all that it must not delete by mistake.
            self._journal.synced(self._store_id)
            self._holdings.clear()
            return self._open()
        if self.state != "open":
            return []
        sent_at = self._heartbeats.pop(ack.seq, None)
        if sent_at is not None:
            self._runner.renew(sent_at, ack.lease_seconds)
        self._outbox.acknowledge(ack.seq)
        return self.poll()

    def _open(self) -> list[FromAgent]:
        self._become("open")
        self._heartbeat_at = self._clock.boottime()
        return self.poll()

    def _talk(self, now: float) -> list[FromAgent]:
        frames: list[FromAgent] = []
        if now >= self._heartbeat_at and self._journal.store_id is not None:
            self._heartbeat_at = now + HEARTBEAT_SECONDS
            seq = self._next_seq()
            while len(self._heartbeats) >= REMEMBERED_HEARTBEATS:
                del self._heartbeats[next(iter(self._heartbeats))]
            self._heartbeats[seq] = now
            at = self._clock.now().timestamp()
            frames.append(wire.Heartbeat(seq, self._epoch, self._journal.store_id, self._journal.revision, at))
            try:
                self._outbox.survey()
            except HostError as error:
                log.warning("cannot look at the host: %s", error)
        # Reports first: whoever waits for a machine must not wait for its curves.
        return [*frames, *self._outbox.reports(self._epoch, self._next_seq), *self._take_samples()]

    def _take_samples(self) -> list[FromAgent]:
        samples, self._samples = self._samples, []
        return [wire.Samples(self._next_seq(), self._epoch, chunk) for chunk in batches(samples)]

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _become(self, state: str) -> None:
        if self.state != state:
            log.debug("link: %s -> %s", self.state, state)
        self.state = state
