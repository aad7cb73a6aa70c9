"""Which GPUs are given out: never a GPU and a part of it, whatever the server says."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from gpuaas.kit.errors import HostError
from gpuaas.node.host.devices import Devices
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.gpus import nvml
from gpuaas.node.host.gpus.gpu import Found, Gpu
from gpuaas.node.host.gpus.scrub import Commands
from gpuaas.node.host.gpus.source import RealGpus
from gpuaas.node.host.paths import Paths
from gpuaas.wire.node import AllocationBody, SlotSpec
from node.samples import ID, OTHER_ID, body

WHOLE = Gpu("GPU-0", 0, "nvidia", "H100", 81559)
PARTS = [replace(WHOLE, uuid=f"MIG-{n}", index=n, model="H100 MIG 3g.40gb", parts=2, card="GPU-0") for n in range(2)]
CLEARS = Commands(nvidia=("true",), mig=("true",))
FAILS = Commands(nvidia=("false",), mig=("false",))


def none_nvml() -> nvml.Nvml:
    raise nvml.Unavailable("there is none")


def devices(tmp_path: Path, *gpus: Gpu, commands: Commands = CLEARS) -> Devices:
    """An agent that has just started, and finds these."""
    source = RealGpus(commands, [], look=lambda: Found([*gpus]), load=none_nvml)
    return Devices(Paths(tmp_path / "state"), source, "boot-1")


def wants(*gpus: str) -> AllocationBody:
    slots = [SlotSpec("sl-aaaaaaaaaaaaaaaa", [*gpus])]
    return changed(body(FakeHost()), slots=slots)


def test_instances_of_one_gpu_are_given_to_different_machines(tmp_path: Path) -> None:
    found = devices(tmp_path, *PARTS)
    found.ensure(ID, wants("MIG-0"))
    found.ensure(OTHER_ID, wants("MIG-1"))
    with pytest.raises(HostError, match=f"in use by {OTHER_ID}"):
        found.ensure("al-cccccccccccccccc", wants("MIG-1"))


def test_a_gpu_is_not_given_out_while_a_part_of_it_is(tmp_path: Path) -> None:
    devices(tmp_path, *PARTS).ensure(ID, wants("MIG-0"))
    whole = devices(tmp_path, WHOLE)  # somebody has turned MIG off
    with pytest.raises(HostError, match=f"in use by {ID}"):
        whole.ensure(OTHER_ID, wants("GPU-0"))
    assert not whole.remove(ID, ["MIG-0"])[0].clean, "it is not there any more: nobody can say that it is clean"
    with pytest.raises(HostError, match="MIG-0, which was not scrubbed"):
        whole.ensure(OTHER_ID, wants("GPU-0"))


def test_a_part_is_not_given_out_while_its_gpu_is(tmp_path: Path) -> None:
    devices(tmp_path, WHOLE).ensure(ID, wants("GPU-0"))
    cut = devices(tmp_path, *PARTS)
    with pytest.raises(HostError, match=f"in use by {ID}"):
        cut.ensure(OTHER_ID, wants("MIG-1"))
    assert not cut.remove(ID, ["GPU-0"])[0].clean
    with pytest.raises(HostError, match="GPU-0, which was not scrubbed"):
        cut.ensure(OTHER_ID, wants("MIG-1"))


def test_a_scrub_proves_nothing_about_what_was_left_in_another_shape(tmp_path: Path) -> None:
    cut = devices(tmp_path, *PARTS, commands=FAILS)
    cut.ensure(ID, wants("MIG-0"))
    assert not cut.remove(ID, ["MIG-0"])[0].clean
    (whole,) = devices(tmp_path, WHOLE).remove("sc-aaaaaaaaaaaaaaaa", ["GPU-0"])  # an operator returns its slot
    assert (whole.clean, "MIG-0, which was not scrubbed" in whole.evidence) == (False, True)


def test_after_a_scrub_its_shape_may_change(tmp_path: Path) -> None:
    cut = devices(tmp_path, *PARTS)
    cut.ensure(ID, wants("MIG-0"))
    assert [scrub.clean for scrub in cut.remove(ID, ["MIG-0"])] == [True]
    whole = devices(tmp_path, WHOLE)
    whole.ensure(ID, wants("GPU-0"))
    assert [scrub.clean for scrub in whole.remove(ID, ["GPU-0"])] == [True]
    devices(tmp_path, *PARTS).ensure(ID, wants("MIG-0", "MIG-1"))


def test_a_part_whose_scrub_failed_holds_its_gpu_back(tmp_path: Path) -> None:
    cut = devices(tmp_path, *PARTS, commands=FAILS)
    cut.ensure(ID, wants("MIG-0"))
    assert not cut.remove(ID, ["MIG-0"])[0].clean
    cut.ensure(OTHER_ID, wants("MIG-1"))
    cut = devices(tmp_path, *PARTS)
    assert cut.remove(OTHER_ID, ["MIG-1"])[0].clean
    with pytest.raises(HostError, match="MIG-0, which was not scrubbed"):
        devices(tmp_path, WHOLE).ensure(ID, wants("GPU-0"))


def test_a_restart_leaves_an_instance_as_it_is_where_nobody_said_how_to_clear_one(tmp_path: Path) -> None:
    found = devices(tmp_path, *PARTS, commands=Commands())
    found.ensure(ID, wants("MIG-0"))
    found.ensure(ID, changed(wants("MIG-0"), restarts=1))
    held = found.held(ID)
    assert held is not None
    assert held.restarts == 1
    assert "MIG instance" in found.remove(ID, ["MIG-0"])[0].evidence, "but the next user does not get it"
