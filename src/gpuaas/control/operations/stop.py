"""Stop: every process ends; disk, address, host key and GPUs are kept. A wish in the spec, like everything else.

deliver -> stop -> stopped
"""

from gpuaas.control.store import allocations, operations, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.operation import STOP, Operation


def start(tx: Tx, allocation: Allocation) -> Operation:
    assert allocation.node_id is not None
    wanted, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    assert wanted is not None
    moved = allocations.move(tx, allocation, "stop", generation=allocation.generation + 1)
    body = {**wanted, "stopped": True}
    specs.write(tx, allocation.node_id, moved.id, moved.incarnation, moved.generation, body)
    return operations.start(tx, moved, STOP)
