"""Whether this host passes packets on. Switched on for machines, and set back by the last agent that needs it.

Of the host, not of one agent: what it was before is kept where every agent on the host looks, one file for each that
needs it. A boot forgets both the switch and the files.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuaas.node.host.kernel import asking

_SWITCH = Path("/proc/sys/net/ipv4/ip_forward")
_NEEDED_BY = Path("/run/gpuaas-forwarding")


def switch_on(agent: str) -> None:
    with asking("switch on", "forwarding (net.ipv4.ip_forward)"), _alone():
        # Writing the switch resets the settings of every interface, so not without a reason.
        now = _SWITCH.read_text().strip()
        (_NEEDED_BY / agent).write_text(_before() or now)
        if now != "1":
            _SWITCH.write_text("1")


def set_back(agent: str) -> None:
    with asking("set back", "forwarding (net.ipv4.ip_forward)"), _alone():
        before = _before()
        (_NEEDED_BY / agent).unlink(missing_ok=True)
        if before and not os.listdir(_NEEDED_BY) and before != _SWITCH.read_text().strip():
            _SWITCH.write_text(before)


def _before() -> str:
    """An empty file: whoever wrote it died before it switched anything."""
    return next((value for file in sorted(_NEEDED_BY.iterdir()) if (value := file.read_text())), "")


@contextmanager
def _alone() -> Iterator[None]:
    directory = os.open(_NEEDED_BY.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        _NEEDED_BY.mkdir(mode=0o700, exist_ok=True)
        yield
        with suppress(OSError):  # somebody still needs it
            _NEEDED_BY.rmdir()
    finally:
        os.close(directory)
