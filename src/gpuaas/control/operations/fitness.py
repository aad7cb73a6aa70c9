"""Which nodes can use a runtime, from what their agents report."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuaas.control.store import allocation_runtimes, nodes, runtime_bundles, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.node import Offer
from gpuaas.model.runtime import AllocationRuntime, RuntimeBundle
from gpuaas.runtimes.compatibility import Machine, reasons
from gpuaas.runtimes.recipe import Requirements

TOO_OLD = "its agent cannot show runtimes: upgrade it"
MIB = 2**20


Builds = Sequence[RuntimeBundle]  # one version, for each architecture that it may be used on


def unfit(tx: Tx, wanted: Sequence[Builds], offer: Offer) -> dict[str, str]:
    """By node: why a machine of this offer could not use them there. Empty where nothing is wanted."""
    if not wanted:
        return {}
    found = {}
    for node_id, able, inventory in nodes.for_runtimes(tx):
        gpus = [gpu for gpu in inventory.get("gpus", []) if gpu["model"] == offer.gpu_model] if offer.gpu_count else []
        bundles = [build_for(builds, inventory.get("architecture")) for builds in wanted]
        if why := _why_not(bundles, able, _machine(inventory, gpus, offer.memory_mib)):
            found[node_id] = why
    return found


def candidates(tx: Tx, offer: Offer) -> set[str]:
    """The nodes that have what the offer is made of."""
    return {
        node_id
        for node_id, _, inventory in nodes.for_runtimes(tx)
        if not offer.gpu_count or any(gpu["model"] == offer.gpu_model for gpu in inventory.get("gpus", []))
    }


def build_for(builds: Builds, architecture: str | None) -> RuntimeBundle:
    """What a machine there would use; where there is none for it, any other, which then says why not."""
    return next((each for each in builds if each.architecture == architecture), builds[0])


def wanted_by(tx: Tx, allocation_id: str) -> list[Builds]:
    """What a machine that waits should have."""
    rows = allocation_runtimes.live(tx, allocation_id)
    return [_builds(tx, row, bundle) for row, bundle in rows if row.state == "applying"]


def _builds(tx: Tx, row: AllocationRuntime, bundle: RuntimeBundle) -> Builds:
    return (row.any_architecture and runtime_bundles.builds(tx, bundle)) or [bundle]


def settle(tx: Tx, allocation: Allocation) -> None:
    """It has waited, and has its place now: what was chosen by name is the build for that architecture from here on."""
    assert allocation.node_id is not None
    wishes = [(row, bundle) for row, bundle in allocation_runtimes.live(tx, allocation.id) if row.any_architecture]
    if not wishes:
        return
    ((_, _, inventory),) = nodes.for_runtimes(tx, allocation.node_id)
    for row, bundle in wishes:
        build = build_for(_builds(tx, row, bundle), inventory.get("architecture"))
        if build.id != bundle.id:
            allocation_runtimes.set_build(tx, row, build)


@dataclass(frozen=True)
class Place:
    """Where a machine is: what it was given, and what its node says of itself."""

    body: Mapping[str, Any]
    able: bool
    inventory: Mapping[str, Any] | None  # None: the node has left

    @property
    def architecture(self) -> str | None:
        return (self.inventory or {}).get("architecture") or None


def place(tx: Tx, allocation: Allocation) -> Place | None:
    """None: it waits for one."""
    if allocation.node_id is None:
        return None
    asked = specs.looking(allocation.node_id, allocation.id), nodes.looking_for_runtimes(allocation.node_id)
    ((body, _),), found = tx.together(*asked)
    assert body is not None
    return Place(body, found[0][1], found[0][2] or {}) if found else Place(body, able=False, inventory=None)


def why_not(bundle: RuntimeBundle, place: Place) -> str:
    """With the GPUs and the memory that it was given. Empty: it fits."""
    if place.inventory is None:
        return "its node has left"
    given = {gpu for slot in place.body["slots"] for gpu in slot["gpus"]}
    gpus = [gpu for gpu in place.inventory.get("gpus", []) if gpu["uuid"] in given]
    return _why_not([bundle], place.able, _machine(place.inventory, gpus, place.body["memory_mib"]))


def _why_not(bundles: Sequence[RuntimeBundle], able: bool, machine: Machine) -> str:
    if not able:
        return TOO_OLD
    return "; ".join(reason for bundle in bundles for reason in _reasons(bundle, machine))


def _reasons(bundle: RuntimeBundle, machine: Machine) -> list[str]:
    """The image is made for one architecture, whatever else its recipe could be built for."""
    wants = msgspec.convert(bundle.requirements, Requirements)
    return reasons(msgspec.structs.replace(wants, architectures=(bundle.architecture,)), machine)


def _machine(inventory: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], memory_mib: int) -> Machine:
    """Of several GPUs what all of them can do."""
    vendors = {gpu["vendor"].lower() for gpu in gpus}
    vendor = vendors.pop() if len(vendors) == 1 else ""
    toolkit = min((_version(gpu.get("toolkit", "")) for gpu in gpus), key=_numbers, default="")
    return Machine(
        architecture=inventory.get("architecture") or "unknown",
        gpu_family=vendor,
        driver=min((_version(gpu.get("driver", "")) for gpu in gpus), key=_numbers, default=""),
        cuda=toolkit if vendor == "nvidia" else "",
        rocm=toolkit if vendor == "amd" else "",
        memory_bytes=memory_mib * MIB,
    )


def _version(said: str) -> str:
    """12.4 of `CUDA 12.4`."""
    found = re.search(r"[0-9]+(\.[0-9]+)*", said)
    return found[0] if found else ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]
