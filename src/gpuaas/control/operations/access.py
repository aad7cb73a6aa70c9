"""Who gets in: other keys on a machine, live. A new generation of the same machine, whatever else it is doing.

deliver -> access -> ready
"""

from collections.abc import Sequence

from gpuaas.control.operations import bodies
from gpuaas.control.store import allocations, operations, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import SshKey
from gpuaas.model.operation import ACCESS_UPDATE, Operation, done


def start(tx: Tx, allocation: Allocation, key_ids: Sequence[str]) -> Operation:
    """The state stays what it is: the machine runs on, or comes up, or comes back, with these keys."""
    if allocation.node_id is None:
        return _finished(tx, allocations.set_(tx, allocation, key_ids=list(key_ids)))
    wanted, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    assert wanted is not None
    changed = allocations.set_(tx, allocation, key_ids=list(key_ids), generation=allocation.generation + 1)
    body = bodies.with_keys(tx, changed, wanted)
    specs.write(tx, allocation.node_id, changed.id, changed.incarnation, changed.generation, body)
    return operations.start(tx, changed, ACCESS_UPDATE)


def withdraw(tx: Tx, machines: Sequence[Allocation], lost: Sequence[SshKey]) -> list[Operation]:
    """These keys no longer get in anywhere on these (locked) machines, not even after a change that fails."""
    ids = {key.id for key in lost}
    started = []
    # By node, because each spec takes its node's row lock.
    for allocation in sorted(machines, key=lambda item: (item.node_id or "", item.id)):
        _forget(tx, allocation, lost)
        has = allocations.key_ids(tx, allocation.id)
        if "access" in allocation.allowed_actions and ids & set(has):
            started.append(start(tx, allocation, [id for id in has if id not in ids]))
    return started


def _forget(tx: Tx, allocation: Allocation, lost: Sequence[SshKey]) -> None:
    """The last good body is what a failed change goes back to."""
    if allocation.node_id is None:
        return
    _, good = specs.bodies(tx, allocation.node_id, allocation.id)
    if good is not None:
        gone = {(key.user_id, key.fingerprint) for key in lost}
        kept = [key for key in good["keys"] if (key["user_id"], key["fingerprint"]) not in gone]
        if kept != good["keys"]:
            specs.set_good(tx, allocation.node_id, allocation.id, {**good, "keys": kept})


def _finished(tx: Tx, allocation: Allocation) -> Operation:
    """Not placed yet: the launch will take the keys from the allocation."""
    operation = operations.start(tx, allocation, ACCESS_UPDATE)
    operations.end(tx, operation, "succeed", phases=done(operation.phases, ACCESS_UPDATE.last, tx.now.timestamp()))
    found = operations.by_id(tx, operation.id)
    assert found is not None
    return found
