"""What every host must do: the same tests on every implementation."""

import hashlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpuaas.kit.errors import HostError
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.interface import Host, boot_config
from gpuaas.wire.node import AllocationBody, RuntimeSpec, SlotSpec
from node.samples import ID, OTHER_ID, body, key

EVERYTHING = {"rootfs", "devices", "network", "access", "container"}


@pytest.fixture
def host() -> Host:
    """Another implementation brings its own fixture of this name: tests/root/test_linux_contract.py."""
    return FakeHost("4xH100")


@pytest.fixture
def scrubs_fail(host: Host) -> Callable[[bool], None]:
    """So does this one: whether scrubs fail from now on."""
    assert isinstance(host, FakeHost)
    return lambda fail: host.fail("scrub", times=100) if fail else host.heal()


def wanted(host: Host, seat: int = 0, restarts: int = 0) -> AllocationBody:
    """A body for the GPU number `seat` of this host."""
    gpu = host.inventory().gpus[seat].uuid
    return body(FakeHost(), seat, restarts=restarts, slots=[SlotSpec("sl-" + "a" * 16, [gpu])])


def make(host: Host, id: str, body: AllocationBody) -> str:
    host.rootfs_ensure(id, body)
    host.devices_ensure(id, body)
    host.network_ensure(id, body)
    host_key = host.access_ensure(id, body.keys)
    host.container_start(id, body)
    return host_key


def remove(host: Host, id: str, body: AllocationBody) -> None:
    host.runtimes_remove(id)
    host.container_stop(id)
    host.access_remove(id)
    host.network_remove(id)
    host.devices_remove(id, [gpu for slot in body.slots for gpu in slot.gpus])
    host.rootfs_remove(id)


def parts(host: Host, id: str = ID) -> set[str]:
    return set().union(*(each.parts for each in host.present() if each.id == id))


def test_the_inventory_adds_up(host: Host) -> None:
    inventory = host.inventory()
    uuids = [gpu.uuid for gpu in inventory.gpus]
    assert len(set(uuids)) == len(uuids) > 1
    assert sorted(gpu for slot in inventory.slots for gpu in slot.gpus) == sorted(uuids)
    assert sum(slot.cpus for slot in inventory.slots) <= inventory.cpus
    assert sum(slot.memory_mib for slot in inventory.slots) <= inventory.memory_mib
    assert inventory == host.inventory()


def test_a_machine_is_made_and_leaves_nothing_behind(host: Host) -> None:
    spec = wanted(host)
    assert host.container(ID) is None
    host_key = make(host, ID, spec)
    machine = host.container(ID)
    assert host_key
    assert machine is not None
    assert (machine.running, machine.restarts, machine.boot_id) == (True, 0, host.boot_id())
    assert machine.config == boot_config(spec)
    assert parts(host) == EVERYTHING
    remove(host, ID, spec)
    assert host.present() == []
    assert host.container(ID) is None


def test_every_part_shows_up_in_present(host: Host) -> None:
    spec = wanted(host)
    seen: set[str] = set()
    for part, ensure in (
        ("rootfs", lambda: host.rootfs_ensure(ID, spec)),
        ("devices", lambda: host.devices_ensure(ID, spec)),
        ("network", lambda: host.network_ensure(ID, spec)),
        ("access", lambda: host.access_ensure(ID, spec.keys)),
        ("container", lambda: host.container_start(ID, spec)),
    ):
        ensure()
        seen.add(part)
        assert parts(host) == seen


def test_ensuring_again_changes_nothing(host: Host) -> None:
    spec = wanted(host)
    host_key = make(host, ID, spec)
    before = host.container(ID)
    for _ in range(2):
        host.rootfs_ensure(ID, spec)
        host.devices_ensure(ID, spec)
        host.network_ensure(ID, spec)
        assert host.access_ensure(ID, spec.keys) == host_key
    assert host.container(ID) == before


def test_removing_what_never_was_is_success(host: Host) -> None:
    remove(host, ID, wanted(host))
    assert host.present() == []


def test_every_removal_gives_evidence(host: Host) -> None:
    spec = wanted(host)
    gpu = spec.slots[0].gpus[0]
    make(host, ID, spec)
    host.container_stop(ID)
    for _ in range(2):
        assert [(scrub.gpu, scrub.clean) for scrub in host.devices_remove(ID, [gpu])] == [(gpu, True)]


def test_devices_that_only_the_host_knows_of_are_scrubbed_too(host: Host) -> None:
    spec = wanted(host)
    host.devices_ensure(ID, spec)
    assert [scrub.gpu for scrub in host.devices_remove(ID, [])] == spec.slots[0].gpus


def test_a_gpu_whose_scrub_failed_is_given_to_nobody_before_another_succeeds(
    host: Host, scrubs_fail: Callable[[bool], None]
) -> None:
    spec = wanted(host)
    gpu = spec.slots[0].gpus[0]
    host.devices_ensure(ID, spec)
    scrubs_fail(True)
    assert [scrub.clean for scrub in host.devices_remove(ID, [gpu])] == [False]
    for id in (OTHER_ID, ID):
        with pytest.raises(HostError, match="not scrubbed"):
            host.devices_ensure(id, spec)
    assert host.present() == []
    scrubs_fail(False)
    # As a slot is given back by an operator: for an id that never had a machine.
    assert [(scrub.gpu, scrub.clean) for scrub in host.devices_remove("sc-" + "a" * 16, [gpu])] == [(gpu, True)]
    host.devices_ensure(OTHER_ID, spec)
    assert parts(host, OTHER_ID) == {"devices"}


def test_devices_are_not_taken_from_a_running_container(host: Host) -> None:
    spec = wanted(host)
    make(host, ID, spec)
    with pytest.raises(HostError):
        host.devices_remove(ID, spec.slots[0].gpus)
    with pytest.raises(HostError):
        host.devices_ensure(ID, wanted(host, restarts=1))
    with pytest.raises(HostError):
        host.rootfs_remove(ID)
    assert host.container(ID).running  # type: ignore[union-attr]


def test_a_running_container_is_not_started_twice(host: Host) -> None:
    spec = wanted(host)
    make(host, ID, spec)
    with pytest.raises(HostError):
        host.container_start(ID, spec)


def test_a_container_needs_everything_below_it(host: Host) -> None:
    host.rootfs_ensure(ID, wanted(host))
    with pytest.raises(HostError, match="access, devices, network"):
        host.container_start(ID, wanted(host))
    assert parts(host) == {"rootfs"}


def test_nothing_exclusive_is_shared(host: Host) -> None:
    spec, other = wanted(host), wanted(host, seat=1)
    make(host, ID, spec)
    with pytest.raises(HostError, match="ids"):
        host.rootfs_ensure(OTHER_ID, spec)
    with pytest.raises(HostError, match="in use"):
        host.devices_ensure(OTHER_ID, spec)
    with pytest.raises(HostError, match=r"in use|has this address"):
        host.network_ensure(OTHER_ID, spec)
    remove(host, OTHER_ID, spec)
    make(host, OTHER_ID, other)
    assert host.container(ID).running  # type: ignore[union-attr]
    assert [scrub.clean for scrub in host.devices_remove("al-" + "c" * 16, spec.slots[0].gpus)] == [False]


def test_an_unknown_gpu_is_refused_for_good(host: Host) -> None:
    spec = body(FakeHost(), slots=[SlotSpec("sl-" + "a" * 16, ["GPU-nowhere"])])
    with pytest.raises(HostError) as refused:
        host.devices_ensure(ID, spec)
    assert not refused.value.transient
    assert [scrub.clean for scrub in host.devices_remove(ID, ["GPU-nowhere"])] == [False]


def test_the_host_key_outlives_the_keys_and_the_container(host: Host) -> None:
    spec = wanted(host)
    host_key = make(host, ID, spec)
    host.container_stop(ID)
    assert host.access_ensure(ID, []) == host_key
    assert host.access_ensure(ID, [key("SHA256:two")]) == host_key


def test_a_notice_for_nobody_is_no_error(host: Host) -> None:
    assert host.notify(ID, "hello") == 0
    make(host, ID, wanted(host))
    assert host.notify(ID, "hello") == 0
    host.container_stop(ID)
    assert host.notify(ID, "hello") == 0


def test_a_restart_starts_with_its_counter(host: Host) -> None:
    make(host, ID, wanted(host))
    again = wanted(host, restarts=3)
    host.container_stop(ID)
    host.devices_ensure(ID, again)
    host.container_start(ID, again)
    assert host.container(ID).restarts == 3  # type: ignore[union-attr]


# runtimes: images that nobody can mount are enough for what every host must do


def runtime(version: str, *, current: bool = True) -> tuple[RuntimeSpec, bytes]:
    data = version.encode() * 5000
    return RuntimeSpec("tool", version, hashlib.sha256(data).hexdigest(), len(data), current), data


def test_an_image_arrives_in_parts_and_is_there_when_it_is_whole(host: Host) -> None:
    spec, data = runtime("one")
    assert host.images() == {}
    assert host.image_begin(spec.digest, spec.size) == 0
    host.image_append(spec.digest, 0, data[:6000])
    assert host.image_begin(spec.digest, spec.size) == 6000
    assert host.images() == {}
    assert not host.image_append(spec.digest, 0, data[:10])
    assert host.image_append(spec.digest, 6000, data[6000:])
    assert host.image_end(spec.digest)
    assert host.images() == {spec.digest: spec.size}


def test_a_host_knows_whether_its_disk_is_low(host: Host) -> None:
    assert host.images_low() in (True, False)  # that of the machine that tests run on may be either


def test_an_image_that_is_another_one_is_thrown_away(host: Host) -> None:
    spec, data = runtime("one")
    host.image_begin(spec.digest, spec.size)
    host.image_append(spec.digest, 0, data[:-1] + b"!")
    assert not host.image_end(spec.digest)
    assert host.images() == {}
    assert host.image_begin(spec.digest, spec.size) == 0


def test_a_runtime_waits_for_its_image_and_the_machine_does_not(host: Host) -> None:
    one, two = runtime("1")[0], runtime("2", current=False)[0]
    spec = replace(wanted(host), runtimes=[one, two])
    make(host, ID, spec)
    host.image_append(one.digest, 0, b"1" * 2500)
    for _ in range(2):
        reports = host.runtimes_ensure(ID, spec)
        assert [(each.version, each.state, each.percent) for each in reports] == [
            ("1", "fetching", 50),
            ("2", "fetching", None),
        ]
        assert not any(each.current for each in reports)
    assert parts(host) == {*EVERYTHING, "runtimes"}
    assert host.runtimes_ensure(ID, wanted(host)) == []
    assert parts(host) == EVERYTHING
    host.runtimes_ensure(ID, spec)
    remove(host, ID, spec)
    assert host.present() == []


def test_runtimes_need_a_file_system_to_be_shown_in(host: Host) -> None:
    with pytest.raises(HostError, match="no rootfs"):
        host.runtimes_ensure(ID, replace(wanted(host), runtimes=[runtime("1")[0]]))
    assert host.present() == []
    host.runtimes_remove(ID)


def test_images_that_nobody_keeps_or_sees_are_thrown_away(host: Host) -> None:
    one, two, three = runtime("one"), runtime("two"), runtime("three")
    for spec, data in (one, two):
        host.image_append(spec.digest, 0, data)
        host.image_end(spec.digest)
    host.image_append(three[0].digest, 0, b"three")
    assert host.images_tidy({one[0].digest, three[0].digest}.__contains__) == [two[0].digest]
    assert set(host.images()) == {one[0].digest}
    assert host.image_begin(three[0].digest, three[0].size) == 5
    assert host.images_tidy(lambda digest: False) == [one[0].digest]
    assert host.images() == {}
    assert host.image_begin(three[0].digest, three[0].size) == 0


def test_whether_an_image_is_kept_is_asked_right_before_it_goes(host: Host) -> None:
    made = [runtime(version) for version in ("one", "two", "three")]
    for spec, data in made:
        host.image_append(spec.digest, 0, data)
        host.image_end(spec.digest)
    asked: dict[str, set[str]] = {}

    def is_kept(digest: str) -> bool:
        asked[digest] = set(host.images())
        return len(asked) == 2

    removed = host.images_tidy(is_kept)
    first, second, third = asked
    assert removed == [first, third]
    assert list(asked.values()) == [{first, second, third}, {second, third}, {second, third}]
    assert set(host.images()) == {second}


def test_only_what_was_not_read_for_long_is_read_again(host: Host) -> None:
    spec, data = runtime("one")
    assert host.image_scrub(1e10, lambda: True) is None
    host.image_append(spec.digest, 0, data)
    host.image_end(spec.digest)
    assert host.image_scrub(0, lambda: True) is None
    assert host.image_scrub(1e10, lambda: True) is None
    assert host.image_check(spec.digest, lambda: True)
    assert set(host.images()) == {spec.digest}
    assert not host.image_check("a" * 64, lambda: True)
    other, data = runtime("other")
    host.image_append(other.digest, 0, data[:100])
    assert not host.image_check(other.digest, lambda: True)
    assert host.image_begin(other.digest, other.size) == 100, "what has arrived of it stays"
    assert host.runtimes_busy() == set()
