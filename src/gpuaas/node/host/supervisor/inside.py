"""Starts one program inside a machine: in all its namespaces, with its limits, its capabilities and its seccomp filter.

No process of ours stays in between. What the tenant can touch is entered last, and nothing of it is loaded: from then
on only memory is used, until the program, which is the platform's own, takes over.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence

from gpuaas.node.host import kernel
from gpuaas.node.host.cgroups.cgroup import Cgroup
from gpuaas.node.host.container.apply import apply
from gpuaas.node.host.container.config import OOM_SCORE_ADJ

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    # The tenant's own would name libraries to be loaded into sshd. Those who log in do not inherit it.
    "OPENSSL_CONF": "/dev/null",
}
_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)


def start(
    machine: int,
    cgroup: Cgroup,
    command: Sequence[str],
    program: bytes,
    fds: tuple[int, int, int],
    environment: Mapping[str, str] = ENVIRONMENT,
) -> int:
    """`machine` is a pidfd of its first process. Answers the pid of the program, a child of the nearest subreaper.

    Only for a process with one thread: it forks.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _enter(machine, cgroup, command, program, fds, environment, tell)
        except BaseException as error:  # nothing of this process may live on
            print(f"could not enter: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    os.close(tell)
    try:
        answer = os.read(told, 16)
    finally:
        os.close(told)
    os.waitpid(pid, 0)
    if not answer:
        raise OSError("it could not be entered")
    return int(answer)


def _enter(
    machine: int,
    cgroup: Cgroup,
    command: Sequence[str],
    program: bytes,
    fds: tuple[int, int, int],
    environment: Mapping[str, str],
    tell: int,
) -> None:
    cgroup.join(os.getpid())
    # Among the first to go when memory runs out, as the machine's own processes are.
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE_ADJ))
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    # Between entering and the program's start the machine's own root must not look into this process.
    kernel.hide_from_tracers()
    kernel.setns(machine, _NAMESPACES)
    child = os.fork()  # only children are in the new pid namespace
    if child != 0:
        os.write(tell, str(child).encode())
        os._exit(0)
    for target, fd in enumerate(fds):
        os.dup2(fd, target, inheritable=True)
    os.closerange(3, 1 << 20)
    os.chdir("/")
    os.umask(0o022)
    os.setsid()
    apply(program)
    os.execve(command[0], list(command[1:]), dict(environment))  # noqa: S606 no shell wanted
