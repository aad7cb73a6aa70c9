"""Discovery, from recordings of what real machines said."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaas.node.host.gpus import amd, links, nvml, pci, use
from gpuaas.node.host.gpus.discover import discover
from gpuaas.node.host.gpus.gpu import Gpu, label, report, slots
from gpuaas.node.host.gpus.recorded import RecordedAmdSmi, RecordedGpu, RecordedNvml
from gpuaas.node.host.gpus.scrub import Commands
from gpuaas.node.host.gpus.source import RealGpus
from gpuaas.node.host.gpus.xids import Xids
from gpuaas.wire.node import GpuReport, GpuSample

GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
CLEARED = Commands(nvidia=("true",), mig=("true",))


def h100(number: int, **more: object) -> RecordedGpu:
    known = {"bus": f"00000000:{number:02X}:00.0", "minor": number, "ecc_errors": 0, "remapped": (0, 0, 0, 0)}
    return RecordedGpu(f"GPU-{number:08d}-aaaa", H100, 85520809984, **(known | more))  # type: ignore[arg-type]


def instance(number: int) -> RecordedGpu:
    name = f"{H100} MIG 1g.10gb"
    return RecordedGpu(f"MIG-{number}", name, 10 * GIB, gpu_instance=number, compute_instance=0)


def put_card(
    sysfs: Path, address: str, vendor: str, driver: str = "", numa: int = -1, render: str = "", hive: str = ""
) -> None:
    directory = sysfs / "bus/pci/devices" / address
    directory.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("device", "0x2330"), ("class", "0x030200"), ("numa_node", str(numa))):
        (directory / name).write_text(text + "\n")
    if driver:
        module = sysfs / "bus/pci/drivers" / driver
        module.mkdir(parents=True, exist_ok=True)
        (directory / "driver").symlink_to(module)
    if hive:
        (directory / "xgmi_hive_info").mkdir()
        (directory / "xgmi_hive_info/xgmi_hive_id").write_text(hive + "\n")
    if render:
        (directory / "drm" / render).mkdir(parents=True)


def none_nvml() -> nvml.Nvml:
    raise nvml.Unavailable("nvidia-ml-py is not installed")


def none_amd() -> amd.AmdSmi:
    raise amd.Unavailable("amdsmi is not installed")


def test_nvidia_gpus_are_read_with_their_driver_and_place(tmp_path: Path) -> None:
    put_card(tmp_path, "0000:01:00.0", "0x10de", "nvidia", numa=1)
    found = nvml.read(RecordedNvml([h100(0), h100(1)]), tmp_path)
    second = found.gpus[1]
    assert (second.uuid, second.model, second.memory_mib) == ("GPU-00000001-aaaa", H100, 81559)
    assert (second.driver, second.toolkit, second.numa, second.bus) == ("550.90.07", "12.4", 1, "0000:01:00.0")
    assert second.nodes == ("/dev/nvidia1",)
    assert second.cdi[0] == "nvidia.com/gpu=GPU-00000001-aaaa"
    assert found.unusable == []


SWITCHES = tuple((f"00000000:C{n}:00.0", 2) for n in range(4))


def test_gpus_behind_the_same_switches_are_linked(tmp_path: Path) -> None:
    found = nvml.read(RecordedNvml([h100(n, links=SWITCHES) for n in range(8)]), tmp_path)
    assert {gpu.link_group for gpu in found.gpus} == {0}
    assert [report(gpu).link_group for gpu in found.gpus] == [0] * 8


def test_bridges_make_pairs_and_one_that_is_down_or_leads_nowhere_does_not(tmp_path: Path) -> None:
    ends = [(1, 0), (0, 0), (3, 0), (2, 0)]
    cards = [h100(n, links=(("", 0), (f"00000000:{other:02X}:00.0", kind))) for n, (other, kind) in enumerate(ends)]
    down, gone = h100(4, links=(("", 0),)), h100(5, links=(("00000000:77:00.0", 0),))
    found = nvml.read(RecordedNvml([*cards, down, gone, h100(6)]), tmp_path)
    assert [gpu.link_group for gpu in found.gpus] == [0, 0, 1, 1, None, None, None]


def test_switches_without_an_address_here_link_all_that_reach_them(tmp_path: Path) -> None:
    outside = (("00000000:00:00.0", 2),)
    found = nvml.read(RecordedNvml([h100(n + 1, links=outside) for n in range(4)]), tmp_path)
    assert [gpu.link_group for gpu in found.gpus] == [0, 0, 0, 0]


def test_a_gpu_that_is_cut_into_instances_is_linked_to_none(tmp_path: Path) -> None:
    cards = [h100(0, links=SWITCHES, mig=[instance(1)]), h100(1, links=SWITCHES), h100(2, links=SWITCHES)]
    found = nvml.read(RecordedNvml(cards), tmp_path, tmp_path)
    assert [gpu.link_group for gpu in found.gpus] == [None, 0, 0]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefghxyz"))), st.permutations("abcdefgh")
)
def test_link_groups_are_what_can_be_reached(ends: dict[str, set[str]], order: list[str]) -> None:
    near: dict[str, set[str]] = {each: {each} for each in "abcdefghxyz"}
    for start, others in ends.items():
        for other in others:
            near[start].add(other)
            near[other].add(start)
    for _ in near:
        near = {each: set().union(*(near[other] for other in others)) for each, others in near.items()}
    found = links.groups(ends, order)
    for one in order:
        alone = near[one] & set(order) == {one}
        assert alone == (one not in found)
        for other in order:
            if not alone:
                assert (other in near[one]) == (found.get(other) == found[one])


def test_mig_instances_take_the_place_of_their_gpu(tmp_path: Path) -> None:
    base = tmp_path / "driver/nvidia/capabilities/gpu0/mig/gi2"
    (base / "ci0").mkdir(parents=True)
    (base / "access").write_text("DeviceFileMinor: 21\nDeviceFileMode: 292\n")
    (base / "ci0/access").write_text("DeviceFileMinor: 22\n")
    split = h100(0, mig=[instance(1), None, instance(2)])
    found = nvml.read(RecordedNvml([split, h100(1, mig=[])]), tmp_path, tmp_path)
    assert [gpu.uuid for gpu in found.gpus] == ["MIG-1", "MIG-2", "GPU-00000001-aaaa"]
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert [gpu.slot for gpu in found.gpus] == ["gpu0-mig0", "gpu0-mig2", "gpu1"]
    assert found.gpus[1].nodes == ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert found.gpus[1].memory_mib == 10240
    assert [slot.cpus for slot in slots(found.gpus, cpus=64, memory_mib=131072)] == [16, 16, 32]


def test_a_lost_gpu_takes_no_other_with_it(tmp_path: Path) -> None:
    found = nvml.read(RecordedNvml([h100(0, lost=True), h100(1)]), tmp_path)
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-00000001-aaaa"]
    assert [each.why for each in found.unusable] == ["it does not answer: GPU is lost"]


@pytest.mark.parametrize(
    ("known", "trouble"),
    [
        ({"ecc_errors": 3}, "3 uncorrected memory errors"),
        ({"remapped": (0, 1, 0, 1)}, "could not be remapped"),
        ({"remapped": (0, 1, 1, 0)}, "waits for a reset"),
        ({"ecc_errors": None, "remapped": None}, ""),
        ({}, ""),
    ],
)
def test_an_unwell_gpu_has_no_slot_and_the_others_keep_theirs(known: dict[str, object], trouble: str) -> None:
    gpus = nvml.read(RecordedNvml([h100(0, **known), h100(1)]), Path("/nowhere")).gpus
    assert trouble in gpus[0].trouble
    assert bool(trouble) == bool(gpus[0].trouble)
    offered = slots(gpus, cpus=32, memory_mib=65536)
    assert [slot.name for slot in offered] == (["gpu1"] if trouble else ["gpu0", "gpu1"])
    assert {(slot.cpus, slot.memory_mib) for slot in offered} == {(16, 32768)}


def test_critical_errors_are_remembered_until_a_reset() -> None:
    gpus = [h100(0), h100(1)]
    library = RecordedNvml(gpus, xids=[(gpus[0], 31), (gpus[1], 79)])
    xids = Xids(library)
    assert xids.poll() == {gpus[1].uuid: "the driver reported the critical error XID 79"}
    assert list(xids.poll()) == [gpus[1].uuid]
    xids.forget(gpus[1].uuid)
    assert xids.poll() == {}


def test_amd_gpus(tmp_path: Path) -> None:
    put_card(tmp_path, "0000:c1:00.0", "0x1002", "amdgpu", numa=1, render="renderD136")
    (tmp_path / "version").write_text("6.2.0-66\n")
    gpu = {
        "uuid": "74ff74a1-0000",
        "bdf": "0000:c1:00.0",
        "asic": {"market_name": "AMD Instinct MI300X (OAM)"},
        "vram": {"vram_size": 196592},
        "driver": {"driver_version": "6.8.5"},
        "ecc": {"uncorrectable_count": 2},
    }
    found = amd.read(RecordedAmdSmi([gpu, {"bdf": "0000:c2:00.0"}]), tmp_path, tmp_path / "version")
    [one] = found.gpus
    assert (one.uuid, one.memory_mib, one.driver, one.toolkit) == ("GPU-74ff74a1-0000", 196592, "6.8.5", "6.2.0")
    assert (one.nodes, one.numa) == (("/dev/dri/renderD136",), 1)
    assert "2 uncorrected" in one.trouble
    assert report(one).model == "AMD Instinct MI300X OAM"
    assert found.unusable[0].what == "0000:c2:00.0"


def test_amd_gpus_of_one_hive_are_linked(tmp_path: Path) -> None:
    hives = ["0x1a2b", "0x1a2b", "", "0x3c4d"]
    for n, hive in enumerate(hives):
        put_card(tmp_path, f"0000:c{n}:00.0", "0x1002", "amdgpu", hive=hive)
    cards = [{"uuid": str(n), "bdf": f"0000:c{n}:00.0", "asic": {}, "vram": {}, "driver": {}} for n in range(4)]
    found = amd.read(RecordedAmdSmi(cards), tmp_path)
    assert [gpu.link_group for gpu in found.gpus] == [0, 0, None, None]
    both = discover(
        lambda: RecordedNvml([h100(n, links=SWITCHES) for n in range(2)]), lambda: RecordedAmdSmi(cards), tmp_path
    )
    assert [gpu.link_group for gpu in both.gpus] == [0, 0, 1, 1, None, None]


@pytest.mark.parametrize(
    ("vendor", "driver", "why"),
    [
        ("0x10de", "", "no driver is bound"),
        ("0x10de", "nouveau", "bound to nouveau"),
        ("0x10de", "vfio-pci", "virtual machines"),
        ("0x10de", "nvidia", "nvidia-ml-py is not installed"),
        ("0x1002", "amdgpu", "amdsmi is not installed"),
        ("0x8086", "i915", "not supported"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, vendor: str, driver: str, why: str) -> None:
    put_card(tmp_path, "0000:17:00.0", vendor, driver)
    found = discover(none_nvml, none_amd, tmp_path, tmp_path)
    assert found.gpus == []
    assert found.unusable[0].what == "0000:17:00.0"
    assert why in found.unusable[0].why


def test_what_a_library_knows_is_not_named_again(tmp_path: Path) -> None:
    put_card(tmp_path, "0000:00:00.0", "0x10de", "nvidia")
    put_card(tmp_path, "0000:09:00.0", "0x1a03", "ast")  # the screen of a server's management board
    found = discover(lambda: RecordedNvml([h100(0)]), none_amd, tmp_path, tmp_path)
    assert (len(found.gpus), found.unusable) == (1, [])


def test_two_vendors_in_one_machine_do_not_meet(tmp_path: Path) -> None:
    other = {"uuid": "1", "bdf": "0000:c1:00.0", "asic": {}, "vram": {}, "driver": {}}
    found = discover(lambda: RecordedNvml([h100(0)]), lambda: RecordedAmdSmi([other]), tmp_path, tmp_path)
    assert [(gpu.index, gpu.slot) for gpu in found.gpus] == [(0, "gpu0"), (1, "amd-gpu0")]


def test_this_machine_can_be_asked() -> None:
    assert isinstance(discover().gpus, list)


def test_a_gpu_that_falls_off_the_bus_leaves_the_shares_of_the_others_alone() -> None:
    gpus = [Gpu(f"GPU-{n}", n, "nvidia", "H100", 81559) for n in range(8)]
    before = slots(gpus, cpus=128, memory_mib=1_000_000, installed=8)
    after = slots(gpus[1:], cpus=128, memory_mib=1_000_003, installed=8)
    assert before[1:] == after
    assert sum(slot.memory_mib for slot in before) <= 1_000_000


def test_a_small_machine_still_has_slots() -> None:
    gpus = [Gpu(f"GPU-{n}", n, "nvidia", "H100", 81559) for n in range(8)]
    assert {(slot.cpus, slot.memory_mib) for slot in slots(gpus, cpus=2, memory_mib=4000)} == {(1, 500)}


@pytest.mark.parametrize("text", ["", "\n", "a\x00b", "NVIDIA\u2122 H100 (PCIe)", "x" * 500, " -.", "Ünïcode"])
def test_whatever_a_library_says_fits_the_wire(text: str) -> None:
    gpu = report(Gpu(label(text), 0, "nvidia", text, 1, driver=text))
    assert msgspec.convert(msgspec.to_builtins(gpu), GpuReport) == gpu


@pytest.mark.parametrize(("text", "address"), [("00000000:17:00.0\0", "0000:17:00.0"), ("garbage", ""), ("", "")])
def test_bus_ids_are_written_as_the_kernel_writes_them(text: str, address: str) -> None:
    assert pci.address(text) == address


def test_a_critical_error_of_the_driver_is_the_trouble_of_its_gpu(tmp_path: Path) -> None:
    gpus = [h100(0), h100(1)]
    library = RecordedNvml(gpus, xids=[(gpus[1], 79)])
    real = RealGpus(look=lambda: nvml.read(library, tmp_path, tmp_path), load=lambda: library)
    found = real.found().gpus
    assert [gpu.trouble for gpu in found] == ["", "the driver reported the critical error XID 79"]
    assert [slot.gpus for slot in slots(found, 8, 65536, installed=2)] == [[gpus[0].uuid]]
    assert report(found[1]).trouble


def test_a_critical_error_of_a_gpu_is_the_trouble_of_all_its_instances(tmp_path: Path) -> None:
    gpus = [h100(0, mig=[instance(1), instance(2)]), h100(1)]
    library = RecordedNvml(gpus, xids=[(gpus[0], 94)])
    real = RealGpus(CLEARED, look=lambda: nvml.read(library, tmp_path, tmp_path), load=lambda: library)
    found = real.found().gpus
    assert [bool(gpu.trouble) for gpu in found] == [True, True, False]
    real.wipe(found[0])(2)
    assert [bool(gpu.trouble) for gpu in real.found().gpus] == [True, True, False], "an instance is not its GPU"


@pytest.mark.parametrize("by", ["wipe", "reset"])
def test_what_happened_before_a_reset_is_over(tmp_path: Path, by: str) -> None:
    gpus = [h100(0), h100(1)]
    library = RecordedNvml(gpus, xids=[(gpus[0], 79), (gpus[1], 79)])
    real = RealGpus(CLEARED, look=lambda: nvml.read(library, tmp_path, tmp_path), load=lambda: library)
    found = real.found().gpus
    library.xids.append((gpus[0], 94))  # before the reset, and not heard yet
    if by == "wipe":
        assert "reset by true" in real.wipe(found[0])(2)
    else:
        real.reset(found[0])
    assert [bool(gpu.trouble) for gpu in real.found().gpus] == [False, True], "seen at once"


def test_an_error_of_a_gpu_that_is_lost_hides_no_other() -> None:
    gpus = [h100(0), h100(1)]
    library = RecordedNvml(gpus, xids=[(gpus[0], 79), (gpus[1], 94)])
    xids = Xids(library)
    gpus[0].lost = True
    assert list(xids.poll()) == [gpus[1].uuid]


def test_a_driver_that_tells_of_no_events_still_has_its_gpus(tmp_path: Path) -> None:
    library = RecordedNvml([h100(0)], tells_events=False)
    real = RealGpus(look=lambda: nvml.read(library, tmp_path, tmp_path), load=lambda: library)
    assert [gpu.trouble for gpu in real.found().gpus] == [""]


MI300X = Gpu("GPU-1", 0, "amd", "MI300X", 196592, bus="0000:c1:00.0")
IN_USE = {
    "bdf": "0000:c1:00.0",
    "activity": {"gfx_activity": 71, "umc_activity": 20, "mm_activity": "N/A"},
    "vram_usage": {"vram_used": 4096, "vram_total": 196592},
    "power": {"socket_power": "N/A", "current_socket_power": 312, "average_socket_power": 65535},
    "current at the junction": 64,
}


def use_of(recorded: dict[str, object], gpu: Gpu = MI300X) -> dict[str, object]:
    """All that is known."""
    found = use.sample(gpu, none_nvml, lambda: RecordedAmdSmi([recorded]))
    assert msgspec.json.decode(msgspec.json.encode(found), type=GpuSample) == found, "it fits the wire"
    return {name: value for name, value in msgspec.to_builtins(found).items() if value not in (None, "")}


def test_how_busy_an_amd_gpu_is() -> None:
    assert use_of(IN_USE) == {
        "gpu": "GPU-1",
        "busy_percent": 71.0,
        "memory_used_mib": 4096,
        "memory_mib": 196592,
        "temperature_celsius": 64.0,
        "power_watts": 312.0,
    }


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"activity": {"gfx_activity": "N/A"}}, "busy_percent"),
        ({"activity": {"gfx_activity": 0xFFFF}}, "busy_percent"),
        ({"power": {"average_socket_power": 0xFFFF}}, "power_watts"),
        ({"current at the junction": "N/A"}, "temperature_celsius"),
        ({"vram_usage": {}}, "memory_used_mib"),
    ],
)
def test_what_an_amd_gpu_does_not_tell_stays_unknown(changes: dict[str, object], unknown: str) -> None:
    known = use_of(IN_USE | changes)
    assert unknown not in known
    assert known["memory_mib"] == 196592
    assert set(use_of(IN_USE)) - set(known) == {unknown}


def test_temperatures_are_degrees_whatever_the_library_counts_in() -> None:
    assert use_of(IN_USE | {"current at the edge": 45500})["temperature_celsius"] == 45.5


def test_an_amd_gpu_that_does_not_answer_has_its_memory_only() -> None:
    assert use_of({"bdf": "0000:ff:00.0"}) == {"gpu": "GPU-1", "memory_mib": 196592}
    silent = use.sample(MI300X, none_nvml, none_amd)
    assert (silent.busy_percent, silent.memory_mib) == (None, 196592)
