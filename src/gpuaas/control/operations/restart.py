"""Restart: the same machine, started anew. A counter in the spec, so that it happens once and survives any crash.

deliver -> stop -> (the node's steps) -> ready
"""

from gpuaas.control.store import allocations, identity, operations, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.operation import RESTART, Operation


def start(tx: Tx, allocation: Allocation, event: str = "restart") -> Operation:
    """Also how a machine whose lease was extended comes back after it was stopped."""
    assert allocation.node_id is not None
    wanted, good = specs.bodies(tx, allocation.node_id, allocation.id)
    body = wanted or good
    assert body is not None
    moved = allocations.move(
        tx,
        allocation,
        event,
        generation=allocation.generation + 1,
        restarts=allocation.restarts + 1,
        failure_code=None,
        failure_message=None,
    )
    project = identity.project(tx, moved.project_id)
    assert project is not None
    again = {**body, "restarts": moved.restarts, "open_network": project.open_network, "stopped": False}
    specs.write(tx, allocation.node_id, moved.id, moved.incarnation, moved.generation, again)
    return operations.start(tx, moved, RESTART)
