"""The SSH ports of machines that are being started: bound early, so that a taken port is known before anything is made.

A supervisor gets the socket and keeps it; whoever connects in between waits, and is let in as soon as it runs.
"""

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpuaas.kit.errors import HostError

BACKLOG = 128


class Listeners:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, socket.socket]] = {}

    def ensure(self, id: str, port: int) -> None:
        with self._lock:
            held = self._held.get(id)
            if held is not None and held[0] == port:
                return
            if held is not None:
                held[1].close()
                del self._held[id]
            self._held[id] = port, _listen(id, port)

    def remove(self, id: str) -> None:
        with self._lock:
            held = self._held.pop(id, None)
        if held is not None:
            held[1].close()

    @contextmanager
    def taken(self, id: str, port: int) -> Iterator[socket.socket]:
        """To be handed to a supervisor. If that comes to nothing it stays ours."""
        self.ensure(id, port)
        with self._lock:
            listener = self._held[id][1]
        yield listener
        self.remove(id)

    def ids(self) -> set[str]:
        with self._lock:
            return set(self._held)

    def close(self) -> None:
        for id in self.ids():
            self.remove(id)


def _listen(id: str, port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family, anywhere = (socket.AF_INET6, "::") if both else (socket.AF_INET, "")
    try:
        return socket.create_server((anywhere, port), family=family, dualstack_ipv6=both, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            cause = f"port {port} is in use by another program on this node; stop it, or restart this machine later"
        else:
            cause = f"port {port} cannot be opened: {error.strerror}"
        raise HostError("network_ensure", id, cause) from error
