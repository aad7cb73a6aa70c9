"""A stream to a machine through the server: may you, can it work now, and the wish that reaches its node."""

from datetime import timedelta

from gpuaas.control.app import access
from gpuaas.control.app.allocations import connectable
from gpuaas.control.store import nodes
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.wire.node import Dial, encode

ACTION = "allocation.connect"
SILENCE = timedelta(seconds=15)  # an agent that has a link says something every few seconds


def connect(tx: Tx, caller: Caller, name: str) -> tuple[Allocation, str]:
    """The machine, and its node."""
    allocation = connectable(tx, caller, name)
    node = nodes.node(tx, allocation.node_id) if allocation.node_id else None
    if node is not None and (node.last_seen_at is None or tx.now - node.last_seen_at > SILENCE):
        raise conflict(
            "node_not_linked",
            "The machine's node has no connection to the server.",
            "Try again in a moment; if it stays like this, tell your operator.",
        )
    if allocation.state != "active" or node is None:
        raise conflict(
            "not_in_this_state",
            f"It is {allocation.state}; there is something to connect to while it is active.",
            f"Right now you can: {', '.join(allocation.allowed_actions) or 'only wait'}.",
            allowed_actions=list(allocation.allowed_actions),
        )
    return allocation, node.id


def still(tx: Tx, caller: Caller, allocation: Allocation) -> None:
    """Whoever could no longer open a stream loses it. Its state is the machine's own business: a dead one hangs up."""
    access.still(tx, caller, ACTION, allocation.project_id)


def ask(tx: Tx, node_id: str, dial: Dial) -> None:
    """By mail, because another replica may hold the node's link. Never through a table: it carries the ticket."""
    tx.post(dials(node_id), encode(dial).decode())


def dials(node_id: str) -> str:
    return f"dial:{node_id}"
