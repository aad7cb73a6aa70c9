"""An allocation follows its node: unreachable while the node is lost, and what it was when the node is back."""

from gpuaas.control.store import allocations, nodes
from gpuaas.control.store.transaction import Tx

MAY_BE_LOST = ("provisioning", "active", "restarting", "failed", "stopped")


def follow(tx: Tx, node_id: str) -> int:
    """Returns how many moved. Safe to run at any time; the sweep runs it until nothing moves."""
    here = allocations.on_node(tx, node_id, (*MAY_BE_LOST, "unreachable"))
    node = nodes.node(tx, node_id)
    if node is None:
        return 0
    moved = 0
    for allocation in here:
        if node.state == "lost" and allocation.state != "unreachable":
            if allocation.state == "failed" and not allocation.kept:
                continue  # already given up and buried; nothing of the user's is on that node
            # Costs stop when the node was last heard, not when we noticed.
            allocations.move(tx, allocation, "lost", at=node.last_seen_at)
            moved += 1
        elif node.state == "ready" and allocation.state == "unreachable":
            allocations.move(tx, allocation, "found")
            moved += 1
    return moved
