"""Id ranges: user namespaces that only carry a map, for mounts, and who runs with the ids of a range."""

import os
import socket
from contextlib import suppress
from pathlib import Path

from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking

IDS_PER_RANGE = 65536


_KEPT: dict[int, int] = {}  # handles by first id; in the helper and, from there, in whoever it forks
_MOST_KEPT = 128
_keeper: socket.socket | None = None


def keep(keeper: socket.socket, found: socket.socket) -> None:
    """In the helper: maps that its children made come through `found`, and the next child for these ids has them."""
    global _keeper
    _keeper = keeper
    with suppress(BlockingIOError):
        while True:
            said, handles = kernel.receive(found, 16, 1)
            if len(_KEPT) < _MOST_KEPT:
                _KEPT[int(said)] = handles[0]
            else:
                os.close(handles[0])


def map_only(uid_base: int) -> int:
    """The same for a mount, which uses the map alone: no process ever runs there, so it serves the next one as well."""
    if uid_base in _KEPT:
        return os.dup(_KEPT[uid_base])
    made = user_namespace(uid_base)
    if _keeper is not None:
        with suppress(OSError):  # its buffer is full: then it is made again
            socket.send_fds(_keeper, [str(uid_base).encode()], [made])
    return made


def user_namespace(uid_base: int, count: int = IDS_PER_RANGE) -> int:
    """A handle on a user namespace in which 0 is `uid_base` of the host. The caller closes it."""
    return _fresh(uid_base, count, {"user": kernel.CLONE_NEWUSER})[0]


def network_namespace(uid_base: int) -> list[int]:
    """Handles on such a user namespace and on a network namespace that belongs to it. The caller closes them."""
    return _fresh(uid_base, IDS_PER_RANGE, {"user": kernel.CLONE_NEWUSER, "net": kernel.CLONE_NEWNET})


def _fresh(uid_base: int, count: int, kinds: dict[str, int]) -> list[int]:
    """Their only process lives as long as this call; the handles, and then mounts or pins, keep the namespaces.

    This forks: it is for the small helper, not for the agent.
    """
    with asking("make a user namespace for", f"ids from {uid_base}"):
        ready, entered = os.pipe()
        done, hold = os.pipe()
        pid = os.fork()
        if pid == 0:
            _wait_inside(sum(kinds.values()), entered, done, (ready, hold))
        try:
            os.close(entered)
            os.close(done)
            if os.read(ready, 1) != b"+":
                raise OSError("it could not be entered: are user namespaces switched off on this machine?")
            for kind in ("uid_map", "gid_map"):
                Path(f"/proc/{pid}/{kind}").write_text(f"0 {uid_base} {count}")
            return [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
        finally:
            os.close(ready)
            os.close(hold)  # the child reads the end of the pipe, and ends
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def processes(uid_base: int, count: int = IDS_PER_RANGE) -> list[int]:
    """Every process with a user id of the range. (The owner of /proc/<pid> is root for whatever was setuid.)

    Without those that have ended and wait for their parent to notice: they hold nothing any more.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                fields = dict(line.split(":", 1) for line in _status(name))
                ids = fields.get("Uid", "").split()
                if not _ended(fields) and any(uid_base <= int(id) < uid_base + count for id in ids):
                    found.append(int(name))
    return found


def _status(pid: str) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()


def _ended(fields: dict[str, str]) -> bool:
    """It only waits for its parent to look, perhaps for ever. (A process can go on without its first thread.)"""
    return fields.get("State", "").split()[:1] == ["Z"] and int(fields.get("Threads", "1")) <= 1


def _wait_inside(kinds: int, entered: int, done: int, others: tuple[int, ...]) -> None:
    try:
        for fd in others:
            os.close(fd)
        kernel.unshare(kinds)
        os.write(entered, b"+")
        os.read(done, 1)
    finally:
        os._exit(0)
