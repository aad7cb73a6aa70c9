"""What stands before the servers: takes connections to any of them that listens, as a load balancer does."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Proxy:
    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._turn = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            for _ in self.ports:
                self._turn += 1
                with contextlib.suppress(OSError):
                    server = socket.create_connection(("127.0.0.1", self.ports[self._turn % len(self.ports)]), 2)
                    server.settimeout(None)
                    break
            else:
                return
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()

    def close(self) -> None:
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(*ports: int) -> Iterator[Proxy]:
    made = Proxy(list(ports))
    try:
        yield made
    finally:
        made.close()
