"""A mount namespace per allocation, pinned below the run directory: dropping the pin drops every mount in it.

The agent stays outside: a helper (`enter`) makes the namespaces and performs `operations` in them. A namespace is
pinned only when its first operations are done, so a pin means a complete one, and a crash before it leaves nothing.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import CLONE_NEWNS
from gpuaas.node.host.mounts import mounts, pins
from gpuaas.node.host.mounts.enter import Reply, Request
from gpuaas.node.host.mounts.helper import Helper
from gpuaas.node.host.mounts.mounts import Mount
from gpuaas.node.host.mounts.operations import AnyOperation
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.supervisor.plan import Plan, Started


class Namespaces:
    """Safe to use from many threads. `keep`: what else operations need to find, if it has mounts of its own."""

    def __init__(self, paths: Paths, keep: Iterable[Path] = ()) -> None:
        self._paths = paths
        self.helper = Helper(paths.run, [paths.state, paths.images, *keep])

    def create(self, id: str, operations: Sequence[AnyOperation]) -> None:
        """A fresh namespace in which `operations` are done. There may be none of this allocation yet."""
        pin = self._paths.pin(id)
        if self.pinned(id):
            raise HostError("pin", id, "it has a mount namespace already")
        pins.prepare(self._paths.pins)
        _, handles = self.helper.ask(Request(list(operations)), None)
        try:
            pins.hold(pin, handles[0])
        finally:
            os.close(handles[0])

    def pinned(self, id: str) -> bool:
        return pins.pinned(self._paths.pin(id), CLONE_NEWNS)

    def change(self, id: str, operations: Sequence[AnyOperation], handle: int | None = None) -> None:
        """Performs `operations` inside. The first that fails ends it; those before it stay done.

        `handle` is a detached mount for one that places it.
        """
        self._inside(id, Request(list(operations)), () if handle is None else (handle,))

    def change_quickly(self, id: str, operations: Sequence[AnyOperation], handle: int | None = None) -> None:
        """The same for operations that wait for nobody: not for the disk, and not for who uses what is unmounted."""
        namespace = self._namespace(id)
        try:
            self.helper.ask_quickly(Request(list(operations)), namespace, () if handle is None else (handle,))
        finally:
            os.close(namespace)

    def mounts(self, id: str) -> list[Mount]:
        return mounts.parse(self._inside(id, Request(look=True))[0].mountinfo)

    def open(self, id: str, path: Path, operations: Sequence[AnyOperation] = ()) -> int:
        """A handle (O_PATH) on a path as it is inside, after `operations`. For `safepath`; the caller closes it."""
        return self._inside(id, Request(list(operations), open=str(path)))[1][0]

    def look(self, id: str, path: Path) -> tuple[list[Mount], int]:
        """Its mounts, and a handle (O_PATH) on a path of it. The caller closes it."""
        reply, handles = self._inside(id, Request(look=True, open=str(path)))
        return mounts.parse(reply.mountinfo), handles[0]

    def supervise(self, id: str, plan: Plan, listener: int) -> Started:
        """Starts the supervisor of a machine, with which it starts the machine in this mount namespace."""
        reply, _ = self._inside(id, Request(supervise=plan), [listener])
        return reply.started or Started(0)

    def command(self, id: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside."""
        return ["nsenter", f"--mount={self._paths.pin(id)}", "--", *command]

    def remove(self, id: str) -> None:
        """Drops the pin, and with it every mount that nobody else holds."""
        pins.drop(self._paths.pin(id))

    def ids(self) -> list[str]:
        """Everything that has a pin, or the beginning of one."""
        return pins.names(self._paths.pins)

    def close(self) -> None:
        """Ends the helper. Pins stay: they are what keeps machines running without an agent."""
        self.helper.close()

    def clear(self) -> None:
        """Ends the helper and removes what pins are kept in, unless some are left."""
        self.close()
        pins.clear(self._paths.pins)

    def _inside(self, id: str, request: Request, more: Sequence[int] = ()) -> tuple[Reply, list[int]]:
        namespace = self._namespace(id)
        try:
            return self.helper.ask(request, namespace, more)
        finally:
            os.close(namespace)

    def _namespace(self, id: str) -> int:
        namespace = pins.reopen(self._paths.pin(id), CLONE_NEWNS)
        if namespace is None:
            raise HostError("enter", id, "it has no mount namespace")
        return namespace
