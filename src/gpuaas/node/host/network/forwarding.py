"""Whether this host passes packets on. Switched on for machines, and set back by the last agent that needs it.

Of the host, not of one agent: what it was before is kept where every agent on the host looks, one file for each that
needs it: the switch as it was, then the agent's run directory. A boot forgets both the switch and the files. Who was
killed for good leaves a file; whoever comes next sees that its owner is gone, and takes it away.
"""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuaas.node.host.kernel import asking
from gpuaas.node.host.network import nft

NEEDED_BY = Path("/run/gpuaas-forwarding")
_SWITCH = Path("/proc/sys/net/ipv4/ip_forward")


def switch_on(agent: str, run: Path) -> None:
    with asking("switch on", "forwarding (net.ipv4.ip_forward)"), _alone():
        # Writing the switch resets the settings of every interface, so not without a reason.
        now = _SWITCH.read_text().strip()
        before = _before()
        _forget_the_gone()
        (NEEDED_BY / agent).write_text(f"{before or now}\n{run}\n")
        if now != "1":
            _SWITCH.write_text("1")


def set_back(agent: str) -> None:
    with asking("set back", "forwarding (net.ipv4.ip_forward)"), _alone():
        before = _before()
        (NEEDED_BY / agent).unlink(missing_ok=True)
        _forget_the_gone()
        if before and not os.listdir(NEEDED_BY) and before != _SWITCH.read_text().strip():
            _SWITCH.write_text(before)


def is_on() -> bool:
    return _SWITCH.read_text().strip() == "1"


def marks() -> dict[str, str]:
    """Who needs it, and why that is not true any more, or nothing."""
    try:
        names = sorted(os.listdir(NEEDED_BY))
    except FileNotFoundError:
        return {}
    tables = nft.tables()
    return {name: _gone(name, tables) for name in names}


def _gone(agent: str, tables: Collection[str]) -> str:
    """An agent's table is there before its mark, and is deleted before it. Its run directory outlives both."""
    with suppress(FileNotFoundError):
        _, _, run = (NEEDED_BY / agent).read_text().partition("\n")
        if run.strip() and not Path(run.strip()).is_dir():
            return f"its directory {run.strip()} is gone"
    return "" if agent in tables else f"there is no nft table {agent}"


def _forget_the_gone() -> None:
    for name, why in marks().items():
        if why:
            (NEEDED_BY / name).unlink(missing_ok=True)


def _before() -> str:
    """An empty file: whoever wrote it died before it switched anything."""
    return next((value for file in sorted(NEEDED_BY.iterdir()) if (value := file.read_text().partition("\n")[0])), "")


@contextmanager
def _alone() -> Iterator[None]:
    directory = os.open(NEEDED_BY.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        NEEDED_BY.mkdir(mode=0o700, exist_ok=True)
        yield
        with suppress(OSError):  # somebody still needs it
            NEEDED_BY.rmdir()
    finally:
        os.close(directory)
