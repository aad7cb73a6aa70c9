"""Processes in the background: only ours are ever touched."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.cli.daemons import Daemon
from gpuaas.kit.errors import Problem

ENVIRONMENT = {"PATH": os.defpath}


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_with_a_reused_number_is_left_alone(tmp_path: Path, stranger: subprocess.Popen[bytes]) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for record in (
        {"pid": stranger.pid, "started": 1, "boot": boot},
        {"pid": stranger.pid, "started": started(stranger.pid), "boot": "another"},
        {"pid": stranger.pid},
        {"pid": 1, "started": started(1), "boot": boot},
        {"pid": -1, "started": 1, "boot": boot},
        {"pid": "x"},
        [],
    ):
        (tmp_path / "server.pid").write_text(json.dumps(record))
        daemon = Daemon("server", tmp_path)
        assert not daemon.running()
        assert not daemon.stop(0.1)
    assert stranger.poll() is None


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_broken_or_missing_file_means_nothing_runs(tmp_path: Path) -> None:
    assert not Daemon("server", tmp_path).running()
    (tmp_path / "server.pid").write_text("{")
    assert not Daemon("server", tmp_path).running()


def test_one_that_ends_says_why(tmp_path: Path) -> None:
    daemon = Daemon("agent", tmp_path)
    daemon.start(["agent", "run"], ENVIRONMENT)
    for _ in range(600):
        if not daemon.running():
            break
        time.sleep(0.02)
    with pytest.raises(Problem) as refused:
        daemon.require("Look.")
    assert "--server" in refused.value.detail
    assert oct(daemon.log.stat().st_mode & 0o777) == "0o600"
