"""Ends everything inside a cgroup, whatever it does against it: forks, ignores signals, is frozen, was moved half-way.

An OCI runtime that was killed leaves processes that it no longer knows of (V7). The kernel's tree knows them all.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.cgroup import Cgroup

_STEP_SECONDS = 0.001
_PATIENT_ROUNDS = 5


def pids(cgroup: Cgroup) -> set[int]:
    """Members of it or of any cgroup below it, in any hierarchy: one may have joined some and not yet the others."""
    found: set[int] = set()
    for directory in cgroup.directories():
        for path, _, files in os.walk(directory):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):  # removed meanwhile
                    found |= {int(pid) for pid in (Path(path) / "cgroup.procs").read_text().split()}
    return found - {0}  # 0: a process of a pid namespace that we do not see


def kill(cgroup: Cgroup, timeout_seconds: float = 10.0) -> None:
    """Until it is empty; absent is success."""
    for error in kill_all([cgroup], timeout_seconds).values():
        raise error


def kill_all(cgroups: Iterable[Cgroup], timeout_seconds: float = 10.0) -> dict[str, HostError]:
    """At the same time: one that hangs keeps nobody else alive. By path, those that did not end, and why."""
    deadline = time.monotonic() + timeout_seconds
    rounds = 0
    left = list(cgroups)
    while alive := [(cgroup, members) for cgroup in left if (members := pids(cgroup))]:
        if time.monotonic() > deadline:
            return {cgroup.path: _hangs(cgroup, members) for cgroup, members in alive}
        left = [cgroup for cgroup, _ in alive]
        for cgroup in left:
            # The dying need a moment; whoever is in v1 hierarchies only is not reached by the first way.
            if not _kill_v2(cgroup) or rounds >= _PATIENT_ROUNDS:
                _kill_v1(cgroup)
        rounds += 1
        time.sleep(_STEP_SECONDS)
    return {}


def freeze(cgroup: Cgroup, timeout_seconds: float = 5.0) -> bool:
    """False when not all of it stopped in time: a process in the kernel may take long."""
    return _set_frozen(cgroup, True, time.monotonic() + timeout_seconds)


def thaw(cgroup: Cgroup, timeout_seconds: float = 5.0) -> bool:
    return _set_frozen(cgroup, False, time.monotonic() + timeout_seconds)


def _kill_v2(cgroup: Cgroup) -> bool:
    """One write kills the whole subtree, forks and frozen ones included (kernel >= 5.14)."""
    if cgroup.layout.v2 is None:
        return False
    try:
        (cgroup.layout.v2 / cgroup.path / "cgroup.kill").write_text("1")
    except OSError:
        return False
    return True


def _kill_v1(cgroup: Cgroup) -> None:
    """Frozen, it cannot fork while we count; a frozen process dies when it is thawed."""
    freeze(cgroup, timeout_seconds=0.2)
    try:
        for pid in pids(cgroup):
            _kill_member(cgroup, pid)
    finally:
        thaw(cgroup, timeout_seconds=0.2)


def _kill_member(cgroup: Cgroup, pid: int) -> None:
    """Held by a descriptor before we look whose it is: a number may be another process by now."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        inside = any(f"{line.split(':', 2)[2]}/".startswith(f"/{cgroup.path}/") for line in lines)
        if inside:
            signal.pidfd_send_signal(held, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass
    finally:
        os.close(held)


def _set_frozen(cgroup: Cgroup, frozen: bool, deadline: float) -> bool:
    if place := cgroup.layout.v1.get("freezer"):
        file, value, done = place / cgroup.path / "freezer.state", ("THAWED", "FROZEN")[frozen], None
    elif cgroup.layout.v2 is not None:
        file, value = cgroup.layout.v2 / cgroup.path / "cgroup.freeze", str(int(frozen))
        done = file.with_name("cgroup.events"), f"frozen {value}"
    else:
        return False
    try:
        while True:
            file.write_text(value)
            ended = value == file.read_text().strip() if done is None else done[1] in done[0].read_text()
            if ended or time.monotonic() > deadline:
                return ended
            time.sleep(_STEP_SECONDS)
    except FileNotFoundError:
        return True


def _hangs(cgroup: Cgroup, members: set[int]) -> HostError:
    return HostError("end", cgroup.path, f"{len(members)} processes do not end: {_describe(members)}")


def _describe(members: set[int]) -> str:
    """Which, and in what state: D says that the kernel, not the process, is what hangs."""
    shown = []
    for pid in sorted(members)[:5]:
        with contextlib.suppress(OSError, IndexError):
            rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            shown.append(f"{pid} ({rest[0]})")
    return ", ".join(shown)
