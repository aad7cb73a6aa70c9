"""A mount namespace per allocation, pinned below the run directory: dropping the pin drops every mount in it.

The agent stays outside: a helper (`enter`) makes the namespaces and performs `operations` in them. A namespace is
pinned only when its first operations are done, so a pin means a complete one, and a crash before it leaves nothing.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.enter import Reply, Request
from gpuaas.node.host.mounts.helper import Helper
from gpuaas.node.host.mounts.mounts import Attribute, Mount, Propagation
from gpuaas.node.host.mounts.operations import AnyOperation
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.supervisor.plan import Plan, Started

_NS_GET_NSTYPE = 0xB703


class Namespaces:
    """Safe to use from many threads. `keep`: what else operations need to find, if it has mounts of its own."""

    def __init__(self, paths: Paths, keep: Iterable[Path] = ()) -> None:
        self._paths = paths
        self.helper = Helper(paths.run, [paths.state, paths.images, *keep])
        self._preparing = threading.Lock()

    def create(self, id: str, operations: Sequence[AnyOperation]) -> None:
        """A fresh namespace in which `operations` are done. There may be none of this allocation yet."""
        pin = self._paths.pin(id)
        if self.pinned(id):
            raise HostError("pin", id, "it has a mount namespace already")
        self._prepare()
        _, handles = self.helper.ask(Request(list(operations)), None)
        with asking("pin", pin):
            try:
                pin.touch(0o600)
                kernel.mount(f"/proc/self/fd/{handles[0]}", str(pin), kernel.MS_BIND)
            finally:
                os.close(handles[0])

    def pinned(self, id: str) -> bool:
        fd = self._open_pin(id)
        if fd is None:
            return False
        os.close(fd)
        return True

    def change(self, id: str, operations: Sequence[AnyOperation]) -> None:
        """Performs `operations` inside. The first that fails ends it; those before it stay done."""
        self._inside(id, Request(list(operations)))

    def mounts(self, id: str) -> list[Mount]:
        return mounts.parse(self._inside(id, Request(look=True))[0].mountinfo)

    def open(self, id: str, path: Path) -> int:
        """A handle (O_PATH) on a path as it is inside, for `safepath`. The caller closes it."""
        return self._inside(id, Request(open=str(path)))[1][0]

    def supervise(self, id: str, plan: Plan, listener: int) -> Started:
        """Starts the supervisor of a machine, with which it starts the machine in this mount namespace."""
        reply, _ = self._inside(id, Request(supervise=plan), [listener])
        return reply.started or Started(0)

    def command(self, id: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside."""
        return ["nsenter", f"--mount={self._paths.pin(id)}", "--", *command]

    def remove(self, id: str) -> None:
        """Drops the pin, and with it every mount that nobody else holds."""
        pin = self._paths.pin(id)
        while self.pinned(id):
            mounts.unmount(pin, lazy=True)
        with asking("remove", pin), suppress(FileNotFoundError):
            pin.unlink()

    def ids(self) -> list[str]:
        """Everything that has a pin, or the beginning of one."""
        try:
            return sorted(os.listdir(self._paths.pins))
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Ends the helper. Pins stay: they are what keeps machines running without an agent."""
        self.helper.close()

    def clear(self) -> None:
        """Ends the helper and removes what pins are kept in, unless some are left."""
        self.close()
        if not self.ids():
            mounts.unmount(self._paths.pins)
            with suppress(FileNotFoundError):
                self._paths.pins.rmdir()

    def _inside(self, id: str, request: Request, more: Sequence[int] = ()) -> tuple[Reply, list[int]]:
        namespace = self._open_pin(id)
        if namespace is None:
            raise HostError("enter", id, "it has no mount namespace")
        try:
            return self.helper.ask(request, namespace, more)
        finally:
            os.close(namespace)

    def _open_pin(self, id: str) -> int | None:
        """A handle on the pinned namespace. A plain file is one that was never pinned."""
        with asking("open the mount namespace of", id):
            try:
                fd = os.open(self._paths.pin(id), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                if fcntl.ioctl(fd, _NS_GET_NSTYPE) == kernel.CLONE_NEWNS:
                    return fd
            except OSError as error:
                if error.errno != errno.ENOTTY:
                    os.close(fd)
                    raise
            os.close(fd)
            return None

    def _prepare(self) -> None:
        """Pins need a private mount to live on: on a shared one, each would be sent to the namespace it pins."""
        with self._preparing:
            if not os.path.ismount(self._paths.pins):
                with asking("make the directory", self._paths.pins):
                    self._paths.pins.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = Attribute.NOSUID | Attribute.NODEV | Attribute.NOEXEC
                fd = mounts.filesystem("tmpfs", {"source": "gpuaas", "mode": "0700", "size": "4m"}, flags)
                try:
                    mounts.attach(fd, self._paths.pins)
                finally:
                    os.close(fd)
            mounts.set_propagation(self._paths.pins, Propagation.PRIVATE)
