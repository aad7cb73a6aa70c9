"""The supervisor's process: starts the machine or takes over a running one, then waits for whatever comes."""

import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.cgroups.cgroup import Cgroup
from gpuaas.node.host.cgroups.kill import kill, pids
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.cgroups.usage import usage
from gpuaas.node.host.supervisor import ending, inside, requests
from gpuaas.node.host.supervisor.plan import Plan, Started
from gpuaas.node.host.supervisor.sessions import Session, Sessions

LOG = "supervisor.log"
TIDY_SECONDS = 5.0
GRACE_SECONDS = 1.0
REAP_SECONDS = 2.0
MAX_LOG_BYTES = 1 << 20
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def supervise(
    plan: Plan, layout: Layout, mount_namespace: int, listener: int, reply: Callable[[Started], None]
) -> NoReturn:
    """Never returns: this process is the supervisor from now on."""
    code = 1
    try:
        _settle(plan, layout)
        Supervisor(plan, layout, socket.socket(fileno=listener)).run(mount_namespace, reply)
        code = 0
    except BaseException:
        traceback.print_exc()
        with suppress(Exception):
            reply(Started(0, f"the supervisor failed: {traceback.format_exc(limit=1).splitlines()[-1]}"))
    finally:
        os._exit(code)


def _settle(plan: Plan, layout: Layout) -> None:
    os.setsid()
    # Its children are seen in the machine before they become sshd: nothing of the host's paths may show.
    kernel.name_process(f"gpuaas-supervisor {plan.id}")
    kernel.become_subreaper()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    log = os.open(Path(plan.live) / LOG, _OPEN, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for fd, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    # Out of the agent's own cgroup: whoever stops the agent's service must not stop this.
    own = Cgroup(layout, plan.own_cgroup)
    own.ensure()
    own.join(os.getpid())
    kernel.outlive_parent()  # from here on it can be found and ended by its cgroup


class Supervisor:
    def __init__(self, plan: Plan, layout: Layout, listener: socket.socket) -> None:
        self._plan = plan
        self._live = Path(plan.live)
        self._cgroup = Cgroup(layout, plan.cgroup)
        self._sessions = Sessions(plan, self._cgroup)
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._own = Cgroup(layout, plan.own_cgroup)
        self._first = 0  # its first process
        self._machine = -1  # and a handle on that
        self._told_to_end = False  # by whoever shuts this host down
        self._ended = False

    def run(self, mount_namespace: int, reply: Callable[[Started], None]) -> None:
        try:
            self._first = self._plan.adopt or self._start(mount_namespace)
            self._machine = os.pidfd_open(self._first)
        except (OSError, HostError) as error:
            self._clear()
            reply(Started(0, str(getattr(error, "cause", error))))
            return
        os.close(mount_namespace)
        control = self._open()
        reply(Started(self._first, supervisor=os.getpid()))
        try:
            self._serve()
        finally:
            self._listener.close()
            control.close()
            with suppress(FileNotFoundError):
                os.unlink(requests.address(self._live))

    # the machine

    def _start(self, mount_namespace: int) -> int:
        """Runs the OCI runtime in the allocation's mount namespace; its orphans become children of this process."""
        # A pipe, not a file: the machine's first process keeps this output, and could fill the host's disk with it.
        reading, writing = os.pipe2(os.O_CLOEXEC)
        me = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                kernel.die_with_parent(signal.SIGKILL, me)
                kernel.setns(mount_namespace, kernel.CLONE_NEWNS)
                null = os.open(os.devnull, os.O_RDWR)
                for source, target in ((null, 0), (writing, 1), (writing, 2)):
                    os.dup2(source, target)
                os.closerange(3, 1 << 20)
                os.umask(0o022)
                os.execve(self._plan.runtime[0], self._plan.runtime, inside.ENVIRONMENT)  # noqa: S606
            finally:
                os._exit(127)
        os.close(writing)
        try:
            code = _wait(child, self._plan.start_seconds)
            said = _read_now(reading).decode(errors="replace").strip().splitlines()
        finally:
            os.close(reading)
        if code != 0:
            how = "did not end in time" if code is None else f"ended with {code}"
            raise HostError("start", self._plan.id, f"{self._plan.runtime[0]} {how}: {'; '.join(said[-3:])}"[:1500])
        return int(Path(self._plan.pid_file).read_text())

    def _clear(self) -> None:
        """After a failed start: nothing of it may live on, whether the runtime knows of it or not."""
        for pid in pids(self._own) - {os.getpid()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(HostError):
            kill(self._cgroup)
        _reap_all(REAP_SECONDS)

    def _end(self, reason: str, grace_seconds: float, status: int | None) -> None:
        # First: whoever sees that it does not run any more finds out why.
        with suppress(OSError, HostError):
            kills = usage(self._cgroup).out_of_memory_kills
            ending.write(self._live, ending.Ending(time.time(), reason, status, kills))
        self._listener.close()
        if grace_seconds > 0 and status is None:
            self._ask_to_end(grace_seconds)
        with suppress(HostError):  # the next line names what does not end, and reaches all the others
            self._sessions.end_all(reason)
        kill(self._cgroup)
        _reap_all(REAP_SECONDS)
        self._ended = True

    def _ask_to_end(self, grace_seconds: float) -> None:
        """A signal to everybody but the first process, whose end would be everybody's at once."""
        deadline = time.monotonic() + grace_seconds
        others = pids(self._cgroup) - {self._first}
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        while pids(self._cgroup) & others and time.monotonic() < deadline:
            _reap_one()
            time.sleep(0.01)

    # what comes

    def _open(self) -> socket.socket:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(FileNotFoundError):
            os.unlink(requests.address(self._live))
        control.bind(requests.address(self._live))
        control.listen(16)
        woken, wake = socket.socketpair()
        for each in (woken, wake, control, self._listener):
            each.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ, partial(self._on_child, woken, wake))
        self._selector.register(control, selectors.EVENT_READ, partial(self._on_request, control))
        self._selector.register(self._listener, selectors.EVENT_READ, self._on_connection)
        self._selector.register(self._machine, selectors.EVENT_READ, self._on_exit)
        return control

    def _serve(self) -> None:
        lingering = bool(self._plan.adopt)
        self._reap()
        while self._goes_on():
            for key, _ in self._selector.select(TIDY_SECONDS if lingering else None):
                if self._goes_on():
                    try:
                        key.data()
                    except (OSError, HostError):
                        _log_error()
            if self._told_to_end:
                self._end("the node stops", GRACE_SECONDS, None)
            lingering = self._sessions.tidy() or (bool(self._plan.adopt) and self._sessions.present() > 0)

    def _goes_on(self) -> bool:
        return not self._ended

    def _on_connection(self) -> None:
        connection, peer = self._listener.accept()
        with connection:
            connection.setblocking(True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._admit(connection, str(peer[0]).removeprefix("::ffff:"))

    def _admit(self, connection: socket.socket, source: str) -> bool:
        opened = self._sessions.open(self._machine, connection, source)
        if opened is None:
            return False
        session, log = opened
        self._selector.register(log, selectors.EVENT_READ, partial(self._on_log, session, log))
        return True

    def _on_log(self, session: Session, log: int) -> None:
        try:
            data = os.read(log, 4096)
        except BlockingIOError:
            return
        if data:
            self._sessions.heard(session, data)
        else:
            self._selector.unregister(log)
            os.close(log)

    def _on_child(self, woken: socket.socket, wake: socket.socket) -> None:
        with suppress(BlockingIOError):
            woken.recv(4096)
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                # The first process is waited for by its own handle, which also works when it was adopted.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid == self._first:
                return
            os.waitpid(found.si_pid, 0)
            self._sessions.ended(found.si_pid)

    def _on_exit(self) -> None:
        status = None
        with suppress(ChildProcessError):
            status = os.waitstatus_to_exitcode(os.waitpid(self._first, 0)[1])
        self._end("the machine stopped", 0, status)

    def _on_terminate(self, *_: object) -> None:
        self._told_to_end = True

    def _on_request(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection:
            connection.settimeout(5.0)
            data, fds = kernel.receive(connection, requests.MAX_MESSAGE, 1)
            try:
                request = msgspec.json.decode(data, type=requests.AnyRequest)
                answer = self._answer(request, fds)
            except Exception as error:  # the agent must hear of it
                answer = requests.Answer(error=str(getattr(error, "cause", error)) or repr(error))
            finally:
                for fd in fds:
                    os.close(fd)
            connection.send(msgspec.json.encode(answer))

    def _answer(self, request: requests.AnyRequest, fds: list[int]) -> requests.Answer:
        match request:
            case requests.Keys():
                self._sessions.keys_changed()
            case requests.Connect(source):
                with socket.socket(fileno=os.dup(fds[0])) as connection:
                    if not self._admit(connection, source):
                        return requests.Answer(error="too many connections are waiting to log in")
            case requests.Stop(reason, grace_seconds):
                self._end(reason, grace_seconds, None)
            case requests.Sessions():
                pass
        return requests.Answer(sessions=self._sessions.present())


def _wait(child: int, seconds: float) -> int | None:
    """Its exit code, or None when it had to be killed."""
    handle = os.pidfd_open(child)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ)
            in_time = selector.select(seconds)
        if not in_time:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if in_time else None


def _read_now(fd: int) -> bytes:
    """What is there already: whoever holds the other end may never close it."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def _log_error() -> None:
    """A tenant decides how often: a machine that is full of processes cannot be entered."""
    traceback.print_exc()
    if os.fstat(2).st_size > MAX_LOG_BYTES:
        os.ftruncate(2, 0)


def _reap_one() -> bool:
    """Takes the status of one child that has ended, if there is one."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _reap_all(seconds: float) -> None:
    """Those on their way out too: the kernel takes a process from its cgroup a moment before its parent can wait."""
    deadline = time.monotonic() + seconds
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
