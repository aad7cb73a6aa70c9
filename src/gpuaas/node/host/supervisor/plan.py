"""What a supervisor is told when it is started, and what it answers."""

from msgspec import Struct


class Plan(Struct, frozen=True):
    """With it come the handle of the allocation's mount namespace and the listening socket, in this order."""

    id: str
    live: str  # <run>/allocations/<id>
    news: str  # the directory that news is put into
    cgroup: str  # the machine's; sessions get children of it
    own_cgroup: str  # where the supervisor and what it runs on the host are found, whatever becomes of them
    runtime: list[str]  # the command that starts the container and returns
    pid_file: str  # written by it
    sshd: list[str]  # the command of a session, inside: the program, then its arguments
    program: bytes  # the seccomp filter of sessions
    start_seconds: float  # for that command
    adopt: int = 0  # the first process of a container that runs already, or 0


class Started(Struct, frozen=True):
    """`pid` 0: it could not be started, and nothing of it is left; `error` says why."""

    pid: int  # of its first process
    error: str = ""
    supervisor: int = 0
