"""The helper: a small process that enters namespaces, so that the agent never has to.

    python -m gpuaas.node.host.mounts.enter SOCKET_FD RUN_DIRECTORY [PATH TO KEEP]...

It puts itself into a small mount namespace of its own and forks a child for every request that comes through the
socket; forking this process costs about a millisecond, forking or starting an agent many. A request brings a socket
for its own bytes and, if it is about an existing namespace, the handle of that. The child of a request for a fresh
namespace gets a copy of the small one: what else is mounted on the host costs nothing. Ends when the agent does.

A request that is `QUICK` comes with the message itself and is served without a fork: everybody else waits meanwhile, so
it is for what waits for nobody, like placing a mount that is there. A user sees the two milliseconds of a fork.
"""

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.cgroups import layout
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import idmaps, loops, small
from gpuaas.node.host.mounts.operations import AnyOperation, perform
from gpuaas.node.host.network import inside
from gpuaas.node.host.network.inside import Machine
from gpuaas.node.host.supervisor.plan import Plan, Started
from gpuaas.node.host.supervisor.supervise import supervise

MAX_FDS = 3
FORKED, QUICK = b"?", b"!"  # how a message on the control socket begins
MOST_QUICK = 32768  # bytes of a request
_CHUNK = 65536


class Request(Struct, frozen=True):
    """A handle of a mount may come with it, for the operation `Place`."""

    operations: list[AnyOperation] = []
    supervise: Plan | None = None  # become the supervisor of a machine; a listening socket comes with it
    look: bool = False  # answer with the mounts
    open: str = ""  # answer with a handle on this path
    network: Machine | None = None  # this and nothing else; the namespace is a network namespace


class Failed(Struct, frozen=True):
    action: str
    target: str
    cause: str
    transient: bool


class Reply(Struct, frozen=True):
    """Comes with the handles of fresh namespaces or of the path that was asked for, if any."""

    failed: Failed | None = None
    mountinfo: str = ""
    started: Started | None = None


# Made before any fork: a child would make it for itself, each time.
_REQUEST = msgspec.json.Decoder(Request)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    os.umask(0)
    # The agent ends by itself when it is told to; a Ctrl-C on its terminal is not for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    older = kernel.mount_namespace_id()
    small.become(Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children need no waiting for
    gc.disable()
    gc.freeze()  # a collection in a child would copy every page it looks at
    with suppress(ConnectionError):  # the agent ended just now
        control.send(b"+")
        _loop(control, older)


def _loop(control: socket.socket, older: int) -> None:
    me, cgroups = os.getpid(), layout.detect()
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    found, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (found, keeper):
        end.setblocking(False)
    while True:
        idmaps.keep(keeper, found)
        message, fds = kernel.receive(control, 1 + MOST_QUICK, MAX_FDS)
        if not message:
            return
        if message.startswith(QUICK):
            _quickly(message[1:], fds, home)
            continue
        if os.fork() == 0:
            control.close()
            _child(fds, older, cgroups, me)
        for fd in fds:
            os.close(fd)


def _quickly(data: bytes, fds: list[int], home: int) -> None:
    with socket.socket(fileno=fds[0]) as caller:
        namespace, handle = [*fds[1:], None][:2]
        assert namespace is not None  # a fresh one would be this process's own
        try:
            reply, _ = _serve(_REQUEST.decode(data), namespace, handle, 0)
            kernel.setns(home, kernel.CLONE_NEWNS)
        except BaseException:
            os._exit(1)  # nobody may be served from a namespace that is not ours
        for fd in fds[1:]:
            os.close(fd)
        with suppress(OSError):  # the agent ended meanwhile
            caller.sendall(msgspec.json.encode(reply))


def _child(fds: list[int], older: int, cgroups: Layout, parent: int) -> None:
    try:
        kernel.die_with_parent(signal.SIGKILL, parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=fds[0]) as caller:
            request = _REQUEST.decode(_read_all(caller))
            if request.supervise is not None:
                supervise(request.supervise, cgroups, fds[1], fds[2], partial(_report, caller))
            home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            namespace, handle = [*fds[1:], None, None][:2]
            reply, handles = _serve(request, namespace, handle, older)
            # So that nothing is held any more when the caller reads that it is done.
            kernel.setns(home, kernel.CLONE_NEWNS)
            data = msgspec.json.encode(reply)
            sent = socket.send_fds(caller, [data[:_CHUNK]], handles)
            for fd in (*handles, *fds[1:]):
                os.close(fd)
            caller.sendall(data[sent:])
        loops.make_direct()  # the caller need not wait for that
    finally:
        os._exit(0)  # whatever happened: a caller that has no reply knows


def _report(caller: socket.socket, started: Started) -> None:
    with suppress(OSError):  # the agent ended meanwhile
        caller.sendall(msgspec.json.encode(Reply(started=started)))
        caller.close()


def _serve(request: Request, namespace: int | None, handle: int | None, older: int) -> tuple[Reply, list[int]]:
    try:
        if request.network is not None:
            return Reply(), inside.serve(request.network, namespace)
        with asking("enter", "a mount namespace"):
            if namespace is None:
                _leave(older)
            else:
                kernel.setns(namespace, kernel.CLONE_NEWNS)
        for operation in request.operations:
            perform(operation, handle)
        handles = [_open(request.open)] if request.open else []
        if namespace is None:
            handles = [os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)]
        mountinfo = Path("/proc/self/mountinfo").read_text(errors="replace") if request.look else ""
    except HostError as error:
        return Reply(Failed(error.action, error.target, error.cause, error.transient)), []
    except Exception as error:  # an outer loop: the caller must hear of it
        return Reply(Failed("perform", "a request", f"{type(error).__name__}: {error}", True)), []
    return Reply(mountinfo=mountinfo), handles


def _leave(older: int) -> None:
    """Into a fresh namespace, one that the namespace `older` can pin.

    The kernel pins only a namespace with a larger id than the pinning one's, to rule out loops. Since 6.18 each CPU has
    a stock of ids, so a newer namespace can have a smaller one. Agents in the machine's first namespace never see it.
    """
    kernel.unshare(kernel.CLONE_NEWNS)
    for cpu in range(os.cpu_count() or 1):
        if not 0 < kernel.mount_namespace_id() <= older:
            return
        with suppress(OSError):  # not a CPU for us
            os.sched_setaffinity(0, {cpu})
            kernel.unshare(kernel.CLONE_NEWNS)


def _open(path: str) -> int:
    with asking("open", path):
        return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read_all(caller: socket.socket) -> bytes:
    parts = []
    while part := caller.recv(_CHUNK):
        parts.append(part)
    return b"".join(parts)


if __name__ == "__main__":
    main()
