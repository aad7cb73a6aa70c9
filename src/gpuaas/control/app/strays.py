"""Machines that a node has and a restored database does not know: an operator looks at them, and has them removed."""

from gpuaas.control.app import access
from gpuaas.control.app.nodes import record
from gpuaas.control.store import allocations, nodes, slots, strays
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import invalid, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.node import Node, Stray

Shown = tuple[Stray, list[str]]


def list_strays(tx: Tx, caller: Caller, name: str) -> list[Shown]:
    """Each with the names of its slots."""
    access.on_platform(tx, caller, "node.read")
    return [_shown(tx, stray) for stray in strays.strays(tx, _node(tx, name).id)]


def remove(tx: Tx, caller: Caller, name: str, id: str, confirm: str) -> Shown:
    """The node deletes it with all its data. Asked again, it is told again."""
    access.on_platform(tx, caller, "node.write")
    node = _node(tx, name, lock=True)
    stray = strays.stray(tx, node.id, id)
    known = allocations.by_id(tx, id)
    if stray is None or (known is not None and known.node_id == node.id):
        raise not_found("stray", f"{name}/{id}")
    if confirm != stray.id:
        raise invalid(
            f"To remove {stray.id} with all its data, `confirm` must repeat its id.",
            f"Send confirm: {stray.id!r}.",
            code="not_confirmed",
        )
    if stray.removed_at is None:
        strays.bury(tx, stray)
    record(tx, "stray.remove", "node", node.id, stray=stray.id)
    found = strays.stray(tx, node.id, id)
    assert found is not None
    return _shown(tx, found)


def _shown(tx: Tx, stray: Stray) -> Shown:
    return stray, sorted(slot.name for slot in slots.by_ids(tx, list(stray.slots)) if slot.node_id == stray.node_id)


def _node(tx: Tx, name: str, *, lock: bool = False) -> Node:
    node = nodes.node(tx, name, lock=lock)
    if node is None or node.state == "removed":
        raise not_found("node", name)
    return node
