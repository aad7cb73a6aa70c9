"""T13: whatever a tenant uses up is the tenant's own: the neighbour and the host do not notice."""

import os
import shutil
import statistics
import subprocess
import time

import pytest

from gpuaas.model.health import NODE_SILENCE
from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Tenant

pytestmark = needs("runc", "catatonit", "ssh")
# A minute each is what is promised; CI has not that long. `make soak` shows it on a quiet machine.
BOMB_SECONDS = float(os.environ.get("GPUAAS_SOAK_SECONDS", "2.5"))
PROMISED_SECONDS = 60
ECHO_SECONDS = 0.25  # of the neighbour's, usually; CI's two processors are all there is
SLOWEST_ECHO_SECONDS = 0.1  # of 99 in 100, in the minute on a quiet machine
HOST_MIB = 300  # of the host's disk, that anything may use
BOMBS = {
    "processes": "python3 -c '\nimport os\nwhile True:\n  try: os.fork()\n  except OSError: pass'",
    "memory": "while :; do python3 -c '\na = []\nwhile True: a.append(bytearray(1 << 24))'; done",
    "shared memory": "head -c 4G /dev/zero >/dev/shm/fill; head -c 4G /dev/zero >/run/fill; sleep 100",
    "disk": "head -c 4G /dev/zero >/fill; head -c 4G /dev/zero >/tmp/fill; sleep 100",
    "files": "cd /var/tmp; seq 1000000 | xargs touch; sleep 100",
    "open files": "python3 -c '\nimport os\nwhile True:\n  try: os.dup(0)\n  except OSError: pass'",
    "sockets": "python3 -c '\nimport socket\na = []\nwhile len(a) < 60000: a += socket.socketpair()'; sleep 100",
    "logs": "while :; do for each in /proc/[0-9]*/fd/[12]; do yes | head -c 1M >$each; done; done",
    "processors": "for i in $(seq 16); do (while :; do :; done) & done; wait",
    "a large directory": "cd $(mktemp -d); while :; do mktemp -u XXXXXXXXXXXX; done | xargs touch",
    "holes": "cd /var/tmp; for i in $(seq 2000); do truncate -s 8T $i; done; cat * >/dev/null; sleep 100",
    "orphans": "python3 -c '\nimport os\nwhile True:\n  try:\n    if os.fork() == 0:\n      if os.fork(): os._exit(0)\n"
    "      os._exit(0)\n  except OSError: pass'",
    "nested directories": 'python3 -c \'\nimport os\nos.chdir("/var/tmp")\nwhile True:\n  try: os.mkdir("d"); '
    'os.chdir("d")\n  except OSError: pass\'',
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_its_tenants_own(tenant: Launch, kind: str) -> None:
    victim, bomber = tenant(), tenant(seat=1, memory_mib=256)
    echo = victim.session("echo there; exec cat")
    assert echo.stdout is not None
    assert echo.stdout.readline() == "there\n"
    state = bomber.node.config.paths.state
    free = shutil.disk_usage(state).free
    bomb = subprocess.Popen(
        bomber.command("gpu@127.0.0.1", f"sudo bash -c '{_quoted(BOMBS[kind])}' >/dev/null 2>&1"),
        stdin=subprocess.DEVNULL,
    )
    times: list[float] = []
    try:
        deadline = time.monotonic() + BOMB_SECONDS
        while time.monotonic() < deadline:
            times.append(_echo(echo))
            time.sleep(0.02)
            asked = time.monotonic()
            used = bomber.host.sample(bomber.id)
            assert used is not None, "the supervisor does not answer"
            assert time.monotonic() - asked < NODE_SILENCE.total_seconds(), "the node would be given up"
            assert used.processes <= bomber.node.config.pids
            assert used.memory_bytes <= used.memory_limit_bytes
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
    assert stopped < 15
    assert (free - shutil.disk_usage(state).free) >> 20 < HOST_MIB + bomber.node.config.disk_mib
    assert _kept(bomber) < 4 << 20
    assert victim.ssh("true").returncode == 0


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
