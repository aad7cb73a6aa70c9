"""What the server still has to hear: facts, conditions, unknown objects, inventory. Said again until acknowledged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from gpuaas.kit.clock import Clock
from gpuaas.node.batch import batches, fitted
from gpuaas.node.journal import Journal
from gpuaas.node.runner import Runner
from gpuaas.wire.node import Condition, Fact, Holding, Inventory, Report

RESEND_SECONDS = 5.0
FORGET_SECONDS = 120.0
WINDOW = 16  # reports on their way at once

Key = tuple[str, str | int]
Item = Fact | Condition | Holding | Inventory


@dataclass
class _Last:
    """What was last said about something."""

    item: Item
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

        due = {c.id: c for c in self._runner.conditions() if self._is_due(("condition", c.id), c, now)}
        for conditions in batches(fitted(condition) for condition in due.values()):
            yield Report(0, 0, conditions=conditions), {("condition", c.id): due[c.id] for c in conditions}

        unknown = [holding for holding in self._unknown if self._is_due(("unknown", holding.id), holding, now)]
        for some_unknown in batches(unknown):
            yield Report(0, 0, unknown=some_unknown), {("unknown", holding.id): holding for holding in some_unknown}

        if self._inventory is not None and self._is_due(("inventory", ""), self._inventory, now):
            yield Report(0, 0, inventory=self._inventory), {("inventory", ""): self._inventory}

    def _is_due(self, key: Key, item: Item, now: float) -> bool:
        last = self._last.get(key)
        if last is None:
            return True
        if not last.acknowledged and now - last.at >= RESEND_SECONDS:
            return True
        if last.item is item or last.item == item:
            return False
        # Progress waits for the last word on it to arrive; a change of state does not.
        return last.acknowledged or not _is_progress(last.item, item)


def _is_progress(one: Item, other: Item) -> bool:
    if not isinstance(one, Condition) or not isinstance(other, Condition):
        return False
    return (one.incarnation, one.generation, one.state) == (other.incarnation, other.generation, other.state)
