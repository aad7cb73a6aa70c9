"""The servers that an agent may talk to: replicas of one control plane. It stays with one that answers."""

from urllib.parse import urlsplit

_SCHEMES = {"http": "ws", "https": "wss"}


class Servers:
    """Used by several threads: whoever finds that a server does not answer turns everybody to the next one."""

    def __init__(self, urls: str) -> None:
        """Addresses, with commas between them."""
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._at = 0
        for url in self._urls or [urls]:
            websocket_url(url)

    @property
    def url(self) -> str:
        return self._urls[self._at]

    @property
    def websocket(self) -> str:
        return websocket_url(self.url)

    @property
    def is_here(self) -> bool:
        """On this machine: then no proxy is asked for it."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "::1", "localhost")

    def __len__(self) -> int:
        return len(self._urls)

    def failed(self, url: str) -> None:
        """It did not answer. Said too late, about one that nobody uses any more, it changes nothing."""
        if url == self.url:
            self._at = (self._at + 1) % len(self._urls)


def websocket_url(server_url: str) -> str:
    """A server's WebSocket base: ws for http, wss for https."""
    scheme, _, rest = server_url.rstrip("/").partition("://")
    if scheme not in _SCHEMES or not rest:
        raise ValueError(f"{server_url!r} is not the address of a server, like https://gpuaas.example.org")
    return f"{_SCHEMES[scheme]}://{rest}"
