"""A machine's container on the real kernel: what its people do every day works, and it is what we asked for."""

import pytest

from gpuaas.node.host.container.verify import verify
from root.conftest import needs
from root.machines import Machine

pytestmark = needs("runc", "catatonit")
DAILY = [
    "ping -c1 -W1 127.0.0.1",
    "su gpu -c 'ping -c1 -W1 ::1'",
    "su gpu -c 'sudo -n true'",
    "su gpu -c 'sudo -n -u gpu true'",
    "useradd -m joe && su joe -c 'touch ~/file' && userdel -r joe",
    "chroot / true",
    "script -qc tty /dev/null || true",
    "python3 -c 'import multiprocessing as m; m.Lock(); m.Pool(2).map(abs, [1])'",
    "su gpu -c 'python3 -m http.server --bind 127.0.0.1 80 & sleep 1; kill $!'",
    "df /dev/shm && touch /run/file /run/lock/file /dev/shm/file /tmp/file",
]


@pytest.fixture
def started(machine: Machine) -> Machine:
    machine.start()
    assert machine.nsenter("ip", "link", "set", "lo", "up").returncode == 0
    return machine


def test_it_is_what_was_asked_for(started: Machine) -> None:
    verify(started.pid, started.boot, started.layout)


@pytest.mark.parametrize("way", ["exec", "enter"])
def test_what_people_do_every_day_works(started: Machine, way: str) -> None:
    run = getattr(started, way)
    failed = {line: done.output for line in DAILY if (done := run("/bin/sh", "-ec", line)).code != 0}
    assert failed == {}
