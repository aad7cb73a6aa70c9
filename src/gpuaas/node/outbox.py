"""What the server still has to hear: facts, conditions, unknown objects, inventory. Said again until acknowledged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from gpuaas.kit.clock import Clock
from gpuaas.node.batch import batches, fitted
from gpuaas.node.journal import Journal
from gpuaas.node.runner import Runner
from gpuaas.wire.node import Condition, Fact, Holding, Inventory, Report

RESEND_SECONDS = 5.0
FORGET_SECONDS = 120.0
# A launch takes less than this, so one report tells of all its steps: each costs the server a transaction. The more
# machines are on their way, the longer each waits: a node tells of progress twenty times a second, not more.
PROGRESS_SECONDS = 0.25
PROGRESS_SECONDS_EACH = 0.05
WINDOW = 16  # reports on their way at once

Key = tuple[str, str | int]
Item = Fact | Condition | Holding | Inventory


@dataclass
class _Last:
    """What was last said about something; None: nothing, but there is progress that waits a moment."""

    item: Item | None
    at: float
    acknowledged: bool = False


@dataclass(frozen=True)
class _Sent:
    at: float
    items: dict[Key, Item]


class Outbox:
    def __init__(self, runner: Runner, journal: Journal, clock: Clock) -> None:
        self._runner = runner
        self._journal = journal
        self._clock = clock
        self._inventory: Inventory | None = None
        self._unknown: list[Holding] = []
        self._last: dict[Key, _Last] = {}
        self._sent: dict[int, _Sent] = {}
        self._pause = PROGRESS_SECONDS
        self.due: float | None = None  # the boottime at which `reports` has more to say without any event

    def reset(self, inventory: Inventory) -> None:
        """A new connection: everything is said again, but the inventory was in its first frame."""
        self._last = {("inventory", ""): _Last(inventory, self._clock.boottime(), acknowledged=True)}
        self._sent = {}
        self._inventory = inventory

    def survey(self) -> None:
        """Looks at the host. Apart from `reports`, because a host takes its time to answer."""
        self._inventory = self._runner.host.inventory()
        self._unknown = self._runner.unknown()

    def reports(self, epoch: int, number: Callable[[], int]) -> list[Report]:
        """What to say now. `number` gives each report its sequence number."""
        now = self._clock.boottime()
        self.due = None
        self._sent = {seq: sent for seq, sent in self._sent.items() if now - sent.at < FORGET_SECONDS}
        room = WINDOW - sum(1 for sent in self._sent.values() if now - sent.at < RESEND_SECONDS)
        made: list[Report] = []
        for report, items in self._due(now):
            if len(made) >= room:
                break
            numbered = replace(report, seq=number(), epoch=epoch)
            made.append(numbered)
            self._sent[numbered.seq] = _Sent(now, items)
            self._last.update({key: _Last(item, now) for key, item in items.items()})
        return made

    def acknowledge(self, seq: int) -> None:
        sent = self._sent.get(seq)
        if sent is None:
            return
        # The journal first: when its disk fails, the report counts as never acknowledged.
        self._journal.acknowledge({item.sequence for item in sent.items.values() if isinstance(item, Fact)})
        for item in sent.items.values():
            if isinstance(item, Condition):
                self._runner.told(item)
        for key, item in sent.items.items():
            last = self._last.get(key)
            if last is not None and last.item is item:
                last.acknowledged = True
                if isinstance(item, Fact) or (isinstance(item, Condition) and item.state == "gone"):
                    del self._last[key]  # never said again by itself
        del self._sent[seq]

    def _due(self, now: float) -> Iterator[tuple[Report, dict[Key, Item]]]:
        facts = [fact for fact in self._journal.facts() if self._is_due(("fact", fact.sequence), fact, now)]
        for some_facts in batches(facts):
            yield Report(0, 0, facts=some_facts), {("fact", fact.sequence): fact for fact in some_facts}

        every = self._runner.conditions()
        on_their_way = sum(condition.state == "converging" for condition in every)
        self._pause = max(PROGRESS_SECONDS, PROGRESS_SECONDS_EACH * on_their_way)
        due = {c.id: c for c in every if self._is_due(("condition", c.id), c, now)}
        for conditions in batches(fitted(condition) for condition in due.values()):
            yield Report(0, 0, conditions=conditions), {("condition", c.id): due[c.id] for c in conditions}

        unknown = [holding for holding in self._unknown if self._is_due(("unknown", holding.id), holding, now)]
        for some_unknown in batches(unknown):
            yield Report(0, 0, unknown=some_unknown), {("unknown", holding.id): holding for holding in some_unknown}

        if self._inventory is not None and self._is_due(("inventory", ""), self._inventory, now):
            yield Report(0, 0, inventory=self._inventory), {("inventory", ""): self._inventory}

    def _is_due(self, key: Key, item: Item, now: float) -> bool:
        last = self._last.get(key)
        converging = isinstance(item, Condition) and item.state == "converging"
        if last is None and not converging:
            return True
        if last is None:
            last = self._last[key] = _Last(None, now, acknowledged=True)
        if last.item is item or last.item == item:
            return not last.acknowledged and now - last.at >= RESEND_SECONDS
        if not converging:
            return True
        # Progress waits for the last word to arrive, and for a moment after it; a verdict does not.
        if not last.acknowledged:
            return now - last.at >= RESEND_SECONDS
        if now - last.at < self._pause:
            self.due = min(self.due or inf, last.at + self._pause)
            return False
        return True
