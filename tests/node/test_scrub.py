"""A GPU is clean only with proof; whatever goes wrong, it stays dirty and says why."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus.gpu import Gpu
from gpuaas.node.host.gpus.marks import Marks
from gpuaas.node.host.gpus.scrub import Commands, by_overwriting, by_reset, reset, scrub
from gpuaas.node.host.gpus.simulated import MEMORY_BYTES, Plan, Simulated
from gpuaas.node.host.gpus.simulated_files import make_memory

CANARY = b"what tenant A wrote"
NVIDIA = Gpu("GPU-1", 0, "nvidia", "H100", 1, bus="0000:17:00.0")


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path / "marks")


@pytest.fixture
def gpus(tmp_path: Path) -> Simulated:
    root = tmp_path / "simulated"
    for name in ("memory", "scrub"):
        (root / name).mkdir(parents=True)
    make_memory(root / "memory", {"0", "1"}, MEMORY_BYTES)
    return Simulated(root, Plan("2xH100", "node-a", 120, 0))


def uuid(gpus: Simulated) -> str:
    return gpus.gpus()[0].uuid


def write_canary(gpus: Simulated) -> Path:
    path = gpus.memory(uuid(gpus))
    with path.open("r+b") as file:
        file.seek(MEMORY_BYTES - len(CANARY))
        file.write(CANARY)
    return path


def test_the_canary_is_gone_and_the_evidence_says_how(gpus: Simulated, marks: Marks) -> None:
    path = write_canary(gpus)
    marks.dirty(uuid(gpus), "given to al-a")
    done = scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus)))
    assert done.clean
    assert hashlib.sha256(bytes(MEMORY_BYTES)).hexdigest() in done.evidence
    assert path.read_bytes() == bytes(MEMORY_BYTES)
    assert marks.why(uuid(gpus)) == ""
    assert scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus))) == done


@pytest.mark.parametrize("size", [0, 100, 40 * MEMORY_BYTES])
def test_a_memory_of_another_size_is_put_right(gpus: Simulated, marks: Marks, size: int) -> None:
    path = write_canary(gpus)
    os.truncate(path, size)
    assert scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus))).clean
    assert path.stat().st_size == MEMORY_BYTES


@pytest.mark.parametrize("trap", ["link", "fifo", "directory", "absent"])
def test_what_is_not_the_memory_is_not_touched(gpus: Simulated, marks: Marks, tmp_path: Path, trap: str) -> None:
    path = gpus.memory(uuid(gpus))
    path.unlink()
    victim = tmp_path / "victim"
    victim.write_bytes(CANARY)
    if trap == "link":
        path.symlink_to(victim)
    elif trap == "fifo":
        os.mkfifo(path)
    elif trap == "directory":
        path.mkdir()
    done = scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus)))
    assert not done.clean
    assert done.evidence
    assert victim.read_bytes() == CANARY
    assert marks.why(uuid(gpus))


def test_a_failure_that_is_injected_leaves_it_dirty_until_it_is_taken_away(gpus: Simulated, marks: Marks) -> None:
    (gpus.root / "scrub/0").write_text("the memory does not answer")
    done = scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus)))
    assert (done.clean, done.evidence) == (False, "the memory does not answer")
    assert marks.all() == {uuid(gpus): "a scrub of it has begun and not ended"}
    (gpus.root / "scrub/0").unlink()
    assert scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus))).clean


def test_a_scrub_that_takes_too_long_is_not_clean(gpus: Simulated, marks: Marks) -> None:
    done = scrub(uuid(gpus), marks, by_overwriting(gpus, uuid(gpus), timeout_seconds=-1))
    assert (done.clean, done.evidence) == (False, "it did not end in time")


def test_an_agent_that_is_killed_in_a_scrub_leaves_the_gpu_dirty(marks: Marks, tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys\n"
        "from gpuaas.node.host.gpus.marks import Marks\n"
        "from gpuaas.node.host.gpus.scrub import scrub\n"
        "scrub('GPU-1', Marks(pathlib.Path(sys.argv[1])), lambda lock: os.kill(os.getpid(), 9))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "marks")], check=False)
    assert done.returncode == -9
    assert marks.why("GPU-1") == "a scrub of it has begun and not ended"
    assert scrub("GPU-1", marks, lambda lock: "cleared").clean
    assert marks.why("GPU-1") == ""


def test_a_mark_that_cannot_be_read_still_counts(marks: Marks, tmp_path: Path) -> None:
    marks.dirty("GPU-1", "given to al-a")
    [file] = (tmp_path / "marks").glob("*.dirty")
    for garbage in (b"", b"{", b"\xff"):
        file.write_bytes(garbage)
        assert marks.why("GPU-1") == "its mark cannot be read"
        assert marks.all() == {}


def test_a_disk_that_is_full_is_not_clean(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")

    def wipe(lock: int) -> str:
        raise OSError(28, "No space left on device")

    assert scrub("GPU-1", marks, wipe).evidence == "[Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("command", "evidence"),
    [
        (("sh", "-c", "echo 'GPU 0000:17:00.0 was successfully reset.'"), "successfully reset"),
        (("echo", "{uuid}", "{index}", "{bus}"), "GPU-1 0 0000:17:00.0"),
    ],
)
def test_a_reset_by_the_vendors_tool(marks: Marks, command: tuple[str, ...], evidence: str) -> None:
    done = scrub("GPU-1", marks, by_reset(NVIDIA, Commands(nvidia=command)))
    assert done.clean
    assert evidence in done.evidence


@pytest.mark.parametrize(
    ("command", "evidence"),
    [
        (("sh", "-c", "echo GPU is in use >&2; exit 3"), "answered 3: GPU is in use"),
        (("sh", "-c", "kill -9 $$"), "killed by signal 9"),
        (("sh", "-c", "sleep 60 & sleep 60"), "did not end within 0.3 seconds"),
        (("/no/such/tool",), "No such file"),
        (("sh", "-c", "yes | head -c 3000000; printf '\\033[31mbad'; exit 1"), "[31mbad"),
        ((), "no command is configured"),
    ],
)
def test_a_reset_that_fails_in_any_way_is_not_clean(marks: Marks, command: tuple[str, ...], evidence: str) -> None:
    done = scrub("GPU-1", marks, by_reset(NVIDIA, Commands(nvidia=command, timeout_seconds=0.3)))
    assert not done.clean
    assert evidence in done.evidence
    assert done.evidence.isprintable()
    assert len(done.evidence) < 1100
    assert marks.why("GPU-1")


def test_a_mig_instance_is_not_cleared_by_guessing(marks: Marks) -> None:
    instance = Gpu("MIG-1", 0, "nvidia", "H100 MIG 1g.10gb", 1, parts=7)
    assert "MIG instance" in scrub("MIG-1", marks, by_reset(instance, Commands())).evidence
    assert scrub("MIG-1", marks, by_reset(instance, Commands(mig=("true",)))).clean


def test_only_one_scrub_of_a_gpu_at_a_time(marks: Marks) -> None:
    with marks.hold("GPU-1"):
        assert scrub("GPU-1", marks, lambda lock: "").evidence == "a scrub of it is still running"
        assert scrub("GPU-2", marks, lambda lock: "").clean
    assert scrub("GPU-1", marks, lambda lock: "").clean


def test_a_tool_that_outlives_the_agent_keeps_the_gpu_locked(marks: Marks, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = (
        "import pathlib, sys\n"
        "from gpuaas.node.host.gpus.gpu import Gpu\n"
        "from gpuaas.node.host.gpus.marks import Marks\n"
        "from gpuaas.node.host.gpus.scrub import Commands, by_reset, scrub\n"
        "tool = ('sh', '-c', 'touch $0; sleep 0.5', sys.argv[2])\n"
        "gpu = Gpu('GPU-1', 0, 'nvidia', 'H100', 1)\n"
        "scrub('GPU-1', Marks(pathlib.Path(sys.argv[1])), by_reset(gpu, Commands(nvidia=tool)))\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "marks"), str(started)])
    while not started.exists():
        time.sleep(0.01)
    agent.kill()
    agent.wait()
    assert scrub("GPU-1", marks, lambda lock: "").evidence == "a scrub of it is still running"
    deadline = time.monotonic() + 5
    while not scrub("GPU-1", marks, lambda lock: "").clean:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_reset_on_restart_says_why_it_failed() -> None:
    reset(NVIDIA, Commands(nvidia=("true",)))
    with pytest.raises(HostError, match="answered 1"):
        reset(NVIDIA, Commands(nvidia=("false",)))
