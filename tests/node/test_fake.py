"""The fake's own promises: its knobs, its canaries, and that its state outlives the agent."""

from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeDisk, FakeHost
from node.samples import ID, OTHER_ID, World, body, key


@pytest.mark.parametrize(
    ("gpus", "count", "vendor", "memory_mib"),
    [("8xH100", 8, "nvidia", 81559), ("4xMI300X", 4, "amd", 196608), ("1xL4", 1, "nvidia", 23034)],
)
def test_gpus_are_read_from_a_word(gpus: str, count: int, vendor: str, memory_mib: int) -> None:
    inventory = FakeHost(gpus, name="one").inventory()
    assert len(inventory.gpus) == len(inventory.slots) == count
    assert {(gpu.vendor, gpu.memory_mib) for gpu in inventory.gpus} == {(vendor, memory_mib)}
    assert inventory.slots[0].name == "gpu0"


@pytest.mark.parametrize(
    ("gpus", "groups"),
    [("4xH100", [0, 0, 0, 0]), ("5xA100", [0, 0, 1, 1, None]), ("2xL4", [None, None]), ("1xH100", [None])],
)
def test_neighbours_are_linked_as_in_real_machines(gpus: str, groups: list[int | None]) -> None:
    assert [gpu.link_group for gpu in FakeHost(gpus).inventory().gpus] == groups


def test_a_gpu_is_cut_into_instances() -> None:
    inventory = FakeHost("1xH100:3x1g.10gb+1x4g.40gb,3xH100", name="one").inventory()
    whole = FakeHost("4xH100", name="one").inventory()
    assert [slot.name for slot in inventory.slots] == [*(f"gpu0-mig{n}" for n in range(4)), "gpu1", "gpu2", "gpu3"]
    assert [gpu.model for gpu in inventory.gpus[:4]] == [*["H100 MIG 1g.10gb"] * 3, "H100 MIG 4g.40gb"]
    assert [gpu.memory_mib for gpu in inventory.gpus[2:4]] == [10240, 40960]
    assert {gpu.card for gpu in inventory.gpus[:4]} == {whole.gpus[0].uuid}
    assert [gpu.uuid for gpu in inventory.gpus[4:]] == [gpu.uuid for gpu in whole.gpus[1:]]
    assert [gpu.link_group for gpu in inventory.gpus] == [None] * 4 + [0] * 3
    assert [gpu.index for gpu in inventory.gpus] == list(range(7))
    assert [slot.cpus for slot in inventory.slots] == [4] * 4 + [16] * 3
    otherwise = {gpu.uuid for gpu in FakeHost("1xH100:2x3g.40gb", name="one").inventory().gpus}
    assert not otherwise & {gpu.uuid for gpu in inventory.gpus}


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ("1xH100:8x1g.10gb", "like 7x1g.10gb"),
        ("1xH100:2x4g.40gb", "more than one H100 has"),
        ("1xH100:3x1g.40gb", "more than one H100 has"),
        ("1xH100:1g.10gb", "like 7x1g.10gb"),
        ("1xL4:1x1g.10gb", "cannot be cut"),
        ("1xH100,1xA100", "one model"),
        ("999xH100:2x1g.10gb", "more than 999"),
        ("1xH100:", "like 8xH100"),
    ],
)
def test_what_cannot_be_cut_so_is_refused(gpus: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FakeHost(gpus)


@pytest.mark.parametrize("gpus", ["", "H100", "0xH100", "8xB9000", "8 x H100", "-1xH100", "9999xH100"])
def test_other_words_are_refused(gpus: str) -> None:
    with pytest.raises(ValueError, match="like 8xH100"):
        FakeHost(gpus)


def test_gpus_are_the_same_every_time_and_others_on_another_host() -> None:
    assert FakeHost(name="one").gpu_uuids() == FakeHost(name="one").gpu_uuids()
    assert not set(FakeHost(name="one").gpu_uuids()) & set(FakeHost(name="two").gpu_uuids())


def test_faults_are_for_one_object_and_run_out() -> None:
    host = FakeHost()
    host.fail("rootfs_ensure", times=1, cause="no space", id=ID, transient=False)
    host.rootfs_ensure(OTHER_ID, body(host, seat=1))
    with pytest.raises(HostError, match="no space") as caught:
        host.rootfs_ensure(ID, body(host))
    assert not caught.value.transient
    host.rootfs_ensure(ID, body(host))


def test_delays_go_through_the_given_sleep() -> None:
    slept: list[float] = []
    host = FakeHost(sleep=slept.append)
    host.delays["rootfs_ensure"] = 2.5
    host.rootfs_ensure(ID, body(host))
    assert slept == [2.5]


def test_data_left_on_a_gpu_is_noticed() -> None:
    world = World()
    world.launch()
    world.host.fail("scrub")
    world.want(ID, None)
    world.settle()
    world.host.state.dirty.clear()  # as if it had forgotten to refuse it
    world.want(OTHER_ID, body(world.host))
    world.settle()
    assert world.host.state.leaks == [(world.host.gpu_uuids()[0], ID, OTHER_ID)]


def test_sessions_end_with_their_key() -> None:
    world = World()
    world.launch(keys=[key("SHA256:one"), key("SHA256:two")])
    assert world.host.login(ID, "SHA256:one")
    assert world.host.login(ID, "SHA256:two")
    assert not world.host.login(ID, "SHA256:three")
    world.want(ID, body(world.host, keys=[key("SHA256:two")]))
    world.settle()
    assert [login.fingerprint for login in world.host.state.sessions[ID]] == ["SHA256:two"]
    world.runner.observe()
    told = [(fact.kind, fact.data["session"]) for fact in world.runner.journal.facts()]
    assert told == [("session.opened", "s1"), ("session.opened", "s2"), ("session.closed", "s1")]
    assert world.host.news() == []


def test_a_saved_machine_outlives_the_process_but_not_a_reboot(tmp_path: Path) -> None:
    def machine(boot_id: str) -> FakeHost:
        return FakeHost.saved(FileDisk(tmp_path, sync=False), "8xH100", "one", "127.0.0.1", boot_id)

    host = machine("boot-a")
    spec = body(host)
    host.rootfs_ensure(ID, spec)
    host.devices_ensure(ID, spec)
    host.network_ensure(ID, spec)
    host_key = host.access_ensure(ID, spec.keys)
    host.container_start(ID, spec)
    again = machine("boot-a")
    assert again.state == host.state
    assert again.container(ID).running  # type: ignore[union-attr]
    rebooted = machine("boot-b")
    assert rebooted.container(ID) is None
    assert rebooted.boot_id() == "boot-b"
    assert rebooted.access_ensure(ID, []) == host_key
    assert machine("boot-b").state == rebooted.state


def test_a_torn_state_is_a_machine_with_nothing_on_it() -> None:
    disk = FakeDisk()
    disk.tear("host.json")
    host = FakeHost.saved(disk, "1xL4", "one", "127.0.0.1", "boot-a")
    assert host.present() == []
    assert host.boot_id() == "boot-a"


def test_a_gpu_in_trouble_is_listed_but_not_proposed() -> None:
    world = World("2xH100")
    world.launch()
    unwell, well = world.host.gpu_uuids()
    world.host.trouble[unwell] = "XID 79: it fell off the bus"
    inventory = world.host.inventory()
    assert [gpu.trouble for gpu in inventory.gpus] == ["XID 79: it fell off the bus", ""]
    assert [slot.gpus for slot in inventory.slots] == [[well]]
    sample = world.host.sample(ID)
    assert sample is not None
    assert [gpu.trouble for gpu in sample.gpus] == ["XID 79: it fell off the bus"]
