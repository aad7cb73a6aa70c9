"""Doctor on this machine: it tries things for real, and leaves nothing behind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.node.host import doctor
from gpuaas.node.host.cgroups.layout import detect
from gpuaas.node.host.findings import Finding
from gpuaas.node.host.oci_runtimes import installed
from gpuaas.node.host.paths import Paths

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.getuid() != 0, reason="mounts, in a namespace of its own")]


def check(state: Path, **more: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in doctor.check(Paths(state=state), **more)}


def test_this_machine_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / ".doctor-killed").mkdir()
    os.utime(tmp_path / ".doctor-killed", (0, 0))
    found = check(tmp_path, simulated_gpus="8xH100")
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    for name in ("kernel", "user namespaces", "idmapped overlay", "cgroups", "EROFS images", "state directory", "GPUs"):
        assert found[name].ok, found[name]
    assert all(finding.ok or (finding.problem and finding.remedy) for finding in found.values())
    assert all(len(finding.value) + len(finding.problem) < 2000 for finding in found.values())


def test_a_state_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    assert check(tmp_path / "not/yet", simulated_gpus="1xH100")["idmapped overlay"].ok
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def in_memory() -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    if [kind for _, place, kind, *_ in mounts if place == "/dev/shm"][-1:] != ["tmpfs"]:
        pytest.skip("/dev/shm is no tmpfs")
    state = Path(f"/dev/shm/gpuaas-test-{os.getpid()}")
    state.mkdir()
    yield state
    shutil.rmtree(state)


def test_a_state_directory_in_memory_is_warned_about(in_memory: Path) -> None:
    assert "tmpfs" in check(in_memory, simulated_gpus="1xH100")["state directory"].problem


def test_images_are_mounted_by_loop_devices_where_they_are_not_from_files(in_memory: Path) -> None:
    """The kernel mounts none from a file on a tmpfs. Without loop devices, which are hidden here, there are none."""
    found = check(in_memory, simulated_gpus="1xH100")["EROFS images"]
    assert (found.ok, "by loop devices" in found.value) == (True, True)
    hidden = f"mount --bind /dev/null /dev/loop-control && {sys.executable} -m gpuaas.node.host.probe {in_memory}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", hidden], capture_output=True, text=True, check=True)
    tried = json.loads(done.stdout)
    assert not doctor.images(tried["images"], tried["images_from_files"]).ok


@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed")
def test_the_runtime_is_found_with_a_verdict() -> None:
    runc = next(each for each in installed(detect()) if each.name == "runc")
    assert runc.version
    assert runc.path.startswith("/")
    if runc.package:  # Debian has repaired this one in every release that is still served
        assert "CVE-2024-21626" not in runc.verdict
    assert runc.refusal == ""
