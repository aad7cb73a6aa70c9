"""Those who run the cluster, and the leads of its tenants: what they ask for while machines come and go."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from gpuaas.control.app import budgets, prices, quotas, slots, usage, users
from gpuaas.control.app.nodes import return_slot
from gpuaas.control.store import nodes
from gpuaas.control.store import slots as slots_of
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.price import Prices

from .actors import Client, Request
from .base import NODES

SECOND = 3_600_000_000  # a price of one unit of money (a million micros) a second, by the hour
TENANTS = ("acme", "umbrella")
USERS = ("user0@acme.org", "user1@acme.org", "user0@umbrella.org")


@dataclass
class Operator(Client):
    """Takes back in the end what it has done in the beginning, mostly."""

    weight: int = 4
    verbs: tuple[str, ...] = ()
    undo: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def next_request(self) -> Request:
        self.made += 1
        if self.undo and self.rng.random() < 0.45:
            verb, about = self.undo.pop(0)
        else:
            verb, about = self._something()
        return Request(f"{self.name}-{self.made}", verb, self.name, work=VERBS[verb], about=about)

    def _something(self) -> tuple[str, tuple[Any, ...]]:
        pick = self.rng.choice
        verb = pick(self.verbs)
        node = f"node{self.rng.randrange(NODES)}"
        slot = self.rng.randrange(3)
        if verb == "node.drain":
            return self._to_undo(verb, (node, None, pick((None, 3, 30))), "node.undrain", (node, None))
        if verb == "slot.drain":
            return self._to_undo("node.drain", (node, slot, pick((None, 3, 30))), "node.undrain", (node, slot))
        if verb == "slot.quarantine":
            return self._to_undo(verb, (node, slot), "slot.return", (node, slot))
        if verb == "node.pool":
            return self._to_undo(verb, (node, pick(TENANTS)), verb, (node, None))
        if verb == "org.quota":
            return verb, (pick(TENANTS), pick((3, 5, 8)))
        if verb == "user.disable":
            user = pick(USERS)
            return self._to_undo(verb, (user,), "user.enable", (user,))
        if verb == "price.publish":
            return verb, (pick((1, 2, 5)) * SECOND, pick(("offers", "gpus")), pick((0, 0, 3)))
        return verb, (self.rng.randrange(5), pick((0.0, 0.5)), pick((0.5, 1.0)))  # usage.correct

    def _to_undo(
        self, verb: str, about: tuple[Any, ...], back: str, back_about: tuple[Any, ...]
    ) -> tuple[str, tuple[Any, ...]]:
        self.undo.append((back, back_about))
        return verb, about


@dataclass
class Lead(Client):
    """The administrator of one tenant."""

    weight: int = 1  # with `accounted` it sets quotas of every kind

    def next_request(self) -> Request:
        self.made += 1
        verb, about = "project.quota", ("gpus", self.rng.choice((2, 4, 7)))
        if self.rng.random() < (0.6 if self.accounted else 0.3):
            verb, about = "budget.set", (self.rng.choice((4, 40)) * 1_000_000,)
        elif self.accounted and self.rng.random() < 0.6:
            kind = self.rng.choice(("allocations", "gpu_hours"))
            about = kind, self.rng.choice((2, 5, 7) if kind == "allocations" else (0, 9, 9))
        return Request(f"{self.name}-{self.made}", verb, self.name, work=VERBS[verb], about=about)


def _drain(tx: Tx, caller: Caller, project: str, node: str, slot: int | None, seconds: int | None) -> None:
    slots.drain(tx, caller, node, _slot(tx, node, slot), "work on it", seconds)


def _undrain(tx: Tx, caller: Caller, project: str, node: str, slot: int | None) -> None:
    slots.undrain(tx, caller, node, _slot(tx, node, slot))


def _quarantine(tx: Tx, caller: Caller, project: str, node: str, slot: int) -> None:
    slots.quarantine(tx, caller, node, _slot(tx, node, slot) or "", "it hums")


def _return(tx: Tx, caller: Caller, project: str, node: str, slot: int) -> None:
    return_slot(tx, caller, node, _slot(tx, node, slot) or "")


def _pool(tx: Tx, caller: Caller, project: str, node: str, org: str | None) -> None:
    slots.set_pool(tx, caller, node, org)


def _org_quota(tx: Tx, caller: Caller, project: str, org: str, most: int) -> None:
    quotas.set_org(tx, caller, org, "gpus", most)


def _project_quota(tx: Tx, caller: Caller, project: str, kind: str, most: int) -> None:
    quotas.set_project(tx, caller, project, kind, most)


def _disable(tx: Tx, caller: Caller, project: str, user: str) -> None:
    users.disable(tx, caller, user, user, "left")


def _enable(tx: Tx, caller: Caller, project: str, user: str) -> None:
    users.enable(tx, caller, user)


def _publish(tx: Tx, caller: Caller, project: str, price: int, by: str, delay: int) -> None:
    found = Prices(offers={"h100-1": price}) if by == "offers" else Prices(gpus={"H100": price}, cpu=7)
    prices.publish(tx, caller, found, tx.now + timedelta(seconds=delay) if delay else None, "")


def _correct(tx: Tx, caller: Caller, project: str, which: int, first: float, last: float) -> None:
    found = tx.conn.execute(text("SELECT * FROM usage WHERE ended_at > started_at ORDER BY id")).all()
    if not found:
        raise not_found("usage record", str(which))
    chosen = found[which % len(found)]
    length = chosen.ended_at - chosen.started_at
    begin, end = chosen.started_at + length * first, chosen.started_at + length * last
    if begin >= end:
        raise conflict("too_short", "There is nothing between.")
    usage.correct(tx, caller, chosen.id, begin, end, "it hummed")


def _budget(tx: Tx, caller: Caller, project: str, amount: int) -> None:
    budgets.set_project(tx, caller, project, amount)


def _slot(tx: Tx, node: str, number: int | None) -> str | None:
    if number is None:
        return None
    found = nodes.node(tx, node)
    there = slots_of.slots(tx, found.id) if found else []
    if number >= len(there):
        raise not_found("slot", f"{node}/{number}")
    return there[number].id


VERBS: dict[str, Callable[..., None]] = {
    "node.drain": _drain,
    "node.undrain": _undrain,
    "slot.quarantine": _quarantine,
    "slot.return": _return,
    "node.pool": _pool,
    "org.quota": _org_quota,
    "project.quota": _project_quota,
    "user.disable": _disable,
    "user.enable": _enable,
    "price.publish": _publish,
    "usage.correct": _correct,
    "budget.set": _budget,
}
OPERATORS_VERBS = (
    *("node.drain", "node.drain", "slot.drain", "slot.quarantine", "node.pool", "node.pool", "org.quota", "org.quota"),
    *("user.disable", "price.publish", "price.publish", "usage.correct", "usage.correct"),
)
ACCOUNTANTS_VERBS = (
    *("user.disable", "user.disable", "price.publish", "usage.correct", "usage.correct", "usage.correct"),
    *("slot.quarantine", "org.quota"),
)
