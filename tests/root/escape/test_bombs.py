"""T13: whatever a tenant uses up is the tenant's own: the neighbour and the host do not notice."""

import os
import shutil
import statistics
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gpuaas.node.link import HEARTBEAT_SECONDS
from gpuaas.wire.node import Sample
from root.conftest import needs
from root.escape.bombs import BOMBS, Traces
from root.escape.conftest import Launch
from root.escape.pulse import beating
from root.escape.tenants import Tenant

pytestmark = needs("runc", "catatonit", "ssh")
# A minute each is what is promised; CI has not that long. `make soak` shows it on a quiet machine.
BOMB_SECONDS = float(os.environ.get("GPUAAS_SOAK_SECONDS", "2.5"))
PROMISED_SECONDS = 60
PATIENCE_SECONDS = 20  # more, until it went off on a machine that others use too
ECHO_SECONDS = 0.25  # of the neighbour's, usually; CI's two processors are all there is
SLOWEST_ECHO_SECONDS = 0.1  # of 99 in 100, in the minute on a quiet machine
HOST_MIB = 300  # of the host's disk, that anything may use


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_its_tenants_own(tenant: Launch, tmp_path: Path, kind: str) -> None:
    victim, bomber = tenant(), tenant(seat=1, memory_mib=256)
    echo = victim.session("echo there; exec cat")
    assert echo.stdout is not None
    assert echo.stdout.readline() == "there\n"
    state = bomber.node.config.paths.state
    free = shutil.disk_usage(state).free
    times: list[float] = []
    samples: list[Sample] = []
    with beating(bomber.host, tmp_path) as beats:
        bomb = subprocess.Popen(
            bomber.command("gpu@127.0.0.1", f"sudo bash -c '{_quoted(BOMBS[kind].script)}' >/dev/null 2>&1"),
            stdin=subprocess.DEVNULL,
        )
        try:
            began = time.monotonic()
            while (passed := time.monotonic() - began) < BOMB_SECONDS or not _went_off(kind, bomber, samples):
                assert passed < BOMB_SECONDS + PATIENCE_SECONDS, "the bomb is a dud"
                times.append(_echo(echo))
                time.sleep(0.02)
                samples.append(_sample(bomber))
        finally:
            began = time.monotonic()
            bomber.stop()
            stopped = time.monotonic() - began
            bomb.kill()
            bomb.wait()
            echo.kill()
            echo.communicate()
    assert statistics.median(times) < ECHO_SECONDS
    if BOMB_SECONDS >= PROMISED_SECONDS:
        assert statistics.quantiles(times, n=100)[-1] < SLOWEST_ECHO_SECONDS
    assert max(later - earlier for earlier, later in pairwise(beats)) < 2 * HEARTBEAT_SECONDS, "a heartbeat was missed"
    assert stopped < 15
    assert (free - shutil.disk_usage(state).free) >> 20 < HOST_MIB + bomber.node.config.disk_mib
    assert _kept(bomber) < 4 << 20
    assert victim.ssh("true").returncode == 0


def _went_off(kind: str, bomber: Tenant, samples: list[Sample]) -> bool:
    return BOMBS[kind].went_off(Traces(bomber, samples))


def _sample(bomber: Tenant) -> Sample:
    used = bomber.host.sample(bomber.id)
    assert used is not None, "the supervisor does not answer"
    assert used.processes <= bomber.node.config.pids
    assert used.memory_bytes <= used.memory_limit_bytes
    return used


def _echo(session: subprocess.Popen[str]) -> float:
    assert session.stdin is not None
    assert session.stdout is not None
    began = time.monotonic()
    session.stdin.write("?\n")
    session.stdin.flush()
    assert session.stdout.readline() == "?\n"
    return time.monotonic() - began


def _kept(tenant: Tenant) -> int:
    """Bytes in the platform's own files of a machine: logs, records."""
    return sum(each.stat().st_size for each in os.scandir(tenant.live) if each.is_file())


def _quoted(script: str) -> str:
    return script.replace("'", "'\\''")
