"""What doctor concludes from what it finds. That it finds it is tried in tests/root/test_doctor.py."""

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host import doctor, limits, oci_runtimes
from gpuaas.node.host.cgroups.layout import Layout, detect
from gpuaas.node.host.findings import Finding, bad, good
from gpuaas.node.host.gpus import cdi_read, checks
from gpuaas.node.host.gpus.cdi_read import Library
from gpuaas.node.host.gpus.gpu import Found, Gpu, Unusable
from gpuaas.node.host.gpus.scrub import Commands, cleared_by
from gpuaas.node.host.oci_runtimes import HOLES, Hole, Runtime, open_holes, parse_version

TRIO = {"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"}
V1 = {name: Path(f"/sys/fs/cgroup/{name}") for name in ("cpu", "cpuset", "memory", "pids", "devices", "freezer")}


def holes(name: str, version: str, *, backports: bool = False) -> set[str]:
    return {hole.cve for hole in open_holes(name, version, lambda wanted: backports)}


@pytest.mark.parametrize(
    ("name", "version", "known"),
    [
        ("runc", "1.0.0-rc6", {"CVE-2019-5736", "CVE-2021-30465", "CVE-2026-41579"} | TRIO),
        ("runc", "1.0.0-rc94", {"CVE-2021-30465", "CVE-2024-21626", "CVE-2026-41579"} | TRIO),
        ("runc", "1.1.5+ds1", {"CVE-2024-21626", "CVE-2026-41579"} | TRIO),
        ("runc", "1.1.15", {"CVE-2026-41579"} | TRIO),
        ("runc", "1.2.8", {"CVE-2026-41579"}),
        ("runc", "1.3.2", {"CVE-2026-41579"} | TRIO),
        ("runc", "1.4.0-rc.2", {"CVE-2026-41579"} | TRIO),
        ("runc", "1.4.0-rc.3", {"CVE-2026-41579"}),
        ("runc", "1.3.6", set()),
        ("runc", "1.4.3", set()),
        ("runc", "1.5.0", set()),
        ("runc", "2.0.0", set()),
        ("crun", "1.8.1", {"CVE-2026-47766", "CVE-2026-88264", "CVE-2026-88265"}),
        ("crun", "1.20", {"CVE-2026-30892", "CVE-2026-47766", "CVE-2026-88264", "CVE-2026-88265"}),
        ("crun", "1.28", {"CVE-2026-88264", "CVE-2026-88265"}),
        ("crun", "1.30", set()),
    ],
)
def test_known_holes_by_version(name: str, version: str, known: set[str]) -> None:
    assert holes(name, version) == known


def test_what_debian_repaired_without_a_new_version_is_not_held_against_it() -> None:
    assert "CVE-2024-21626" not in holes("runc", "1.1.5+ds1", backports=True)


def test_versions_are_ordered() -> None:
    texts = ["0.9", "1.0.0-rc6", "1.0.0~rc95", "1.0.0", "1.0.1", "1.1.12", "1.1.15+ds1-2"]
    assert sorted(texts, key=parse_version) == texts
    with pytest.raises(ValueError, match="not a version"):
        parse_version("unknown")


def runtime(name: str = "runc", refusal: str = "", open_holes: tuple[Hole, ...] = ()) -> Runtime:
    return Runtime(name, f"/usr/bin/{name}", "1.1.5", "", open_holes, refusal)


def test_a_hole_that_the_agent_closes_warns_and_does_not_block() -> None:
    closed = next(hole for hole in HOLES["runc"] if hole.cve == "CVE-2025-31133")
    findings = doctor.runtimes([runtime(open_holes=(closed,))])
    assert doctor.ready(findings) == (True, "")
    assert not findings[1].ok
    assert "CVE-2025-31133 (no allocation's user namespace has the host's root)" in findings[1].value
    assert "1.3.6" in findings[1].remedy


def test_a_runtime_is_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [runtime(refusal="it is open to CVE-1"), runtime("crun", refusal="it does not say its version: killed")]
    monkeypatch.setattr(oci_runtimes, "installed", lambda layout: found)
    with pytest.raises(HostError, match="/usr/bin/runc: it is open to CVE-1; /usr/bin/crun: it does not say"):
        oci_runtimes.choose(detect())
    found[0] = runtime()
    assert oci_runtimes.choose(detect()) == "/usr/bin/runc"


def test_without_a_runtime_that_can_be_used_the_node_is_not_ready() -> None:
    assert doctor.ready(doctor.runtimes([])) == (False, "OCI runtime: none is installed")
    ready, reason = doctor.ready(doctor.runtimes([runtime("crun", "it starts nothing here")]))
    assert not ready
    assert "crun 1.1.5: it starts nothing here" in reason
    assert doctor.ready(doctor.runtimes([runtime(), runtime("crun", "it starts nothing here")]))[0]


@pytest.mark.parametrize(
    ("release", "ok"),
    [("6.18.44-fc", True), ("5.19.0", True), ("5.15.0-91-generic", False), ("4.4", False), ("?", False)],
)
def test_kernels(release: str, ok: bool) -> None:
    assert doctor.kernel(release).ok is ok


def test_cgroups() -> None:
    assert doctor.cgroups(Layout(V1)).ok
    assert doctor.cgroups(Layout({}, Path("/c"), frozenset({"cpu", "cpuset", "memory", "pids"}))).ok
    lacking = doctor.cgroups(Layout({}, Path("/c"), frozenset({"cpu", "cpuset", "pids"})))
    assert (lacking.ok, lacking.problem) == (False, "nothing limits memory")
    assert not doctor.cgroups(Layout({})).ok


def test_images() -> None:
    assert doctor.images("", "").value == "mounted from files"
    by_loop = doctor.images("", "block device required")
    assert (by_loop.ok, "by loop devices" in by_loop.value) == (True, True)
    neither = doctor.images("this kernel does not know the file system", "this kernel does not know the file system")
    assert (neither.ok, neither.required) == (False, True)
    assert neither.problem == "this kernel does not know the file system"
    assert "CONFIG_EROFS_FS" in neither.remedy


def test_gpus() -> None:
    assert doctor.gpus(Found(), "8xH100").value == "8xH100, simulated"
    none = doctor.gpus(Found([], [Unusable("0000:17:00.0", "nvidia 0x2330: no driver is bound to it")]))
    assert (none.ok, none.required) == (False, True)
    assert "no driver is bound" in none.problem
    unwell = doctor.gpus(Found([Gpu("GPU-1", 0, "nvidia", "H100", 1, "550", "12.4", trouble="XID 79")]))
    assert (unwell.ok, unwell.required) == (False, False)


NULL = Gpu("GPU-1", 0, "nvidia", "H100", 1, nodes=("/dev/tty1",), cdi=("nvidia.com/gpu=0",))
CUT = replace(NULL, uuid="MIG-1", card="GPU-1", parts=7)


def library(tmp_path: Path, *names: str, node: str = "/dev/tty1") -> Library:
    devices = [{"name": name, "containerEdits": {"deviceNodes": [{"path": node}]}} for name in names]
    made = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}
    (tmp_path / "nvidia.json").write_bytes(msgspec.json.encode(made))
    return cdi_read.read([tmp_path], owner=os.getuid())


@pytest.mark.skipif(not Path("/dev/tty1").is_char_device(), reason="there is no character device to name")
def test_a_gpu_that_no_cdi_spec_names_keeps_the_node_from_taking_machines(tmp_path: Path) -> None:
    assert checks.specs([NULL], library(tmp_path, "0")).ok
    other = replace(NULL, uuid="GPU-2", cdi=("nvidia.com/gpu=1",))
    found = checks.specs([NULL, other], library(tmp_path, "0"))
    assert (found.ok, found.required, found.value) == (False, True, "for 1 of 2 GPUs")
    assert found.problem == "GPU-2: no CDI spec has it"
    assert "nvidia-ctk cdi generate" in found.remedy
    stale = checks.specs([NULL], library(tmp_path, "0", node="/dev/tty2"))
    assert "write the spec again" in stale.problem


def test_a_spec_that_others_can_write_is_none(tmp_path: Path) -> None:
    library(tmp_path, "0")
    (tmp_path / "nvidia.json").chmod(0o666)
    found = checks.specs([NULL], cdi_read.read([tmp_path], owner=os.getuid()))
    assert "others than root can change it" in found.problem


def test_without_what_clears_a_gpu_nobody_gets_it() -> None:
    (missing,) = checks.resets([NULL, NULL], Commands(nvidia=("no-such-program", "{uuid}")))
    assert (missing.name, missing.ok, missing.required) == ("no-such-program", False, True)
    assert "nothing else clears nvidia" in missing.problem
    assert [each.ok for each in checks.resets([NULL], Commands(nvidia=("true",)))] == [True]
    assert checks.resets([CUT], Commands()) == [], "of instances something else is said"
    assert not checks.resets([CUT], cleared_by("no-such-program {uuid}"))[0].ok


def test_instances_that_nobody_clears_are_warned_about() -> None:
    (warning,) = checks.instances([CUT, NULL], Commands())
    assert (warning.ok, warning.required, warning.value) == (False, False, "1 instances")
    assert "after its first user" in warning.problem
    assert checks.instances([CUT], cleared_by("/usr/local/sbin/clear-mig {uuid}"))[0].ok
    assert checks.instances([NULL], Commands()) == []


def test_gpus_in_trouble_and_no_gpus_at_all_need_nothing(tmp_path: Path) -> None:
    assert checks.check([replace(NULL, trouble="XID 79")], library(tmp_path), Commands()) == []
    assert checks.check([], library(tmp_path), Commands()) == []


def test_nothing_is_unlimited_unless_somebody_asks_for_it() -> None:
    lacking = doctor.limit("image", "mkfs.ext4 is not installed", "apt install e2fsprogs")
    assert (lacking.ok, lacking.required) == (False, True)
    assert "--disk-limit none" in lacking.remedy
    assert doctor.limit("image", "", "").ok
    asked = doctor.limit("none", *limits.missing("none"))
    assert asked.ok
    assert "as asked" in asked.value


def test_a_file_system_that_is_a_module_is_there_too(tmp_path: Path) -> None:
    (tmp_path / "filesystems").write_text("nodev\ttmpfs\n\txfs\n")
    modules = tmp_path / os.uname().release
    modules.mkdir()
    assert limits.has_filesystem("xfs", tmp_path, tmp_path)
    assert not limits.has_filesystem("ext4", tmp_path, tmp_path)
    (modules / "modules.dep").write_text("kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz\n")
    assert limits.has_filesystem("ext4", tmp_path, tmp_path)


def test_the_text_says_what_to_do() -> None:
    findings = [
        good("kernel", "6.18"),
        bad("nft", "missing", "nft is not installed", "apt install nftables"),
        bad("sshd", "missing", "sshd is not installed", "apt install openssh-server", required=False),
    ]
    text = doctor.render(findings)
    assert text.splitlines()[0] == "ok    kernel  6.18"
    assert "FAIL  nft     missing\n              nft is not installed\n              apt install nftables" in text
    assert "warn  sshd" in text
    assert text.endswith("This machine is not ready: see FAIL above.\n")
    assert doctor.ready(findings) == (False, "nft: nft is not installed")
    assert doctor.render([Finding("a", True, "b")]).endswith("This machine is ready.\n")
    assert doctor.render([])


V1_LINE = "24 23 0:22 / /sys/fs/cgroup/{0} rw,relatime shared:1 - cgroup cgroup rw,{1}\n"


def test_layouts(tmp_path: Path) -> None:
    unified = tmp_path / "a b"
    unified.mkdir()
    (unified / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    v2 = f"30 23 0:25 / {str(unified).replace(' ', chr(92) + '040')} rw,nosuid shared:2 - cgroup2 cgroup2 rw\n"
    v1 = V1_LINE.format("cpu,cpuacct", "cpu,cpuacct") + V1_LINE.format("systemd", "xattr,name=systemd")
    again = V1_LINE.format("../../../containers/cpu", "cpu,cpuacct")
    file = tmp_path / "mountinfo"
    file.write_text("1 0 8:1 / / rw - ext4 /dev/vda rw\n" + v1 + again + v2)
    hybrid = detect(file)
    assert hybrid.kind == "hybrid"
    shared, named = Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup/systemd")
    assert hybrid.v1 == {"cpu": shared, "cpuacct": shared, "name=systemd": named}
    assert hybrid.hierarchies() == [unified, shared, named]
    file.write_text(v2)
    assert (detect(file).kind, detect(file).lacking()) == ("v2", [])
    file.write_text(v1)
    assert (detect(file).kind, detect(file).lacking()) == ("v1", ["cpuset", "memory", "pids"])
    file.write_text("")
    assert detect(file).kind == "none"


def test_where_descriptors_lie_nobody_but_root_may_write(tmp_path: Path) -> None:
    directory = tmp_path / "gpuaas/runtime/allocations"
    assert doctor.descriptors(directory).ok, "it is made"
    directory.mkdir(parents=True)
    assert doctor.descriptors(directory).ok
    (tmp_path / "gpuaas").chmod(0o775)
    found = doctor.descriptors(directory)
    assert (found.ok, found.required, found.value) == (False, True, str(tmp_path / "gpuaas"))
    assert f"chmod go-w {tmp_path}/gpuaas" in found.remedy
