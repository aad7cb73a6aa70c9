"""The body of an allocation's spec, made from what the store knows."""

from collections.abc import Iterable, Sequence

import msgspec

from gpuaas.control.store import allocation_runtimes, allocations, keys
from gpuaas.control.store.specs import Body
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem
from gpuaas.model.allocation import Allocation, ssh_port, uid_base
from gpuaas.model.identity import Project, SshKey
from gpuaas.model.node import Offer
from gpuaas.model.placement import SlotView
from gpuaas.model.runtime import Shown, shown
from gpuaas.wire.node import MAX_SPEC_BYTES, AllocationBody, KeySpec, RuntimeSpec, SlotSpec


def build(
    allocation: Allocation, offer: Offer, slots: Sequence[SlotView], keys: Iterable[SshKey], project: Project
) -> Body:
    assert allocation.seat is not None
    # On a node of its own it has all that there is: nobody else could use it.
    whole = allocation.realisation == "baremetal"
    body = AllocationBody(
        name=allocation.name,
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        slots=[SlotSpec(slot.id, list(slot.gpus)) for slot in sorted(slots, key=lambda slot: slot.id)],
        cpus=sum(slot.cpus for slot in slots) if whole else offer.cpus,
        memory_mib=sum(slot.memory_mib for slot in slots) if whole else offer.memory_mib,
        seat=allocation.seat,
        ssh_port=ssh_port(allocation.seat),
        uid_base=uid_base(allocation.seat),
        keys=[_key(key) for key in keys],
        restarts=allocation.restarts,
        open_network=project.open_network,
    )
    return _fitting({name: msgspec.to_builtins(getattr(body, name)) for name in body.__struct_fields__})


def with_keys(tx: Tx, allocation: Allocation, body: Body) -> Body:
    """The same machine, for the keys that the allocation has now."""
    return _fitting({**body, "keys": [msgspec.to_builtins(_key(key)) for key in keys_of(tx, allocation)]})


def with_runtimes(tx: Tx, allocation_id: str, body: Body) -> Body:
    """The same machine, with the runtimes that it should have now."""
    rows = allocation_runtimes.live(tx, allocation_id)
    return _fitting({**body, "runtimes": [msgspec.to_builtins(_runtime(each)) for each in shown(rows)]})


def _runtime(each: Shown) -> RuntimeSpec:
    return RuntimeSpec(each.slug, each.version, each.digest, each.size, each.current, each.applied_at.timestamp())


def keys_of(tx: Tx, allocation: Allocation) -> list[SshKey]:
    """The keys that the allocation should have, as far as their owner still has them."""
    wanted = set(allocations.key_ids(tx, allocation.id))
    return [key for key in keys.keys(tx, allocation.owner_id) if key.id in wanted]


def key_ids(tx: Tx, allocation: Allocation, body: Body) -> list[str]:
    """The keys that are in a body, again as far as their owner still has them."""
    inside = {key["fingerprint"] for key in body["keys"]}
    return [key.id for key in keys.keys(tx, allocation.owner_id) if key.fingerprint in inside]


def _fitting(body: Body) -> Body:
    if len(msgspec.json.encode(body)) > MAX_SPEC_BYTES - 4096:
        raise Problem(
            "spec_too_large", 422, "This machine has too much to say: its spec exceeds 256 KiB.", "Use fewer keys."
        )
    return body


def _key(key: SshKey) -> KeySpec:
    # The owner's own keys hold no lease: a lost link must not lock people out of their own machine.
    return KeySpec(key.user_id, f"{key.type} {key.blob} {key.user_id}/{key.id}", key.fingerprint)
