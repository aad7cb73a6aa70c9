"""The servers that an agent may talk to: replicas of one control plane. It stays with one that answers."""

from urllib.parse import urlsplit

_SCHEMES = {"http": "ws", "https": "wss"}
_PORTS = {"http": 80, "https": 443}
MOST_MET = 64  # replicas behind the servers that were named


class Servers:
    """Used by several threads: whoever finds that a server does not answer turns everybody to the next one."""

    def __init__(self, urls: str) -> None:
        """Addresses, with commas between them."""
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._at = 0
        self._met: list[tuple[str, int]] = []
        self._named = [_end(url) for url in self._urls or [urls]]

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

    @property
    def ends(self) -> set[tuple[str, int]]:
        """Name or address, and port, of every one that is known."""
        return {*self._named, *self._met}

    def met(self, url: str) -> None:
        """A replica that one of them named."""
        end = _end(url)
        if end not in self._met:
            self._met = [*self._met, end][-MOST_MET:]

    def __len__(self) -> int:
        return len(self._urls)

    def failed(self, url: str) -> None:
        """It did not answer. Said too late, about one that nobody uses any more, it changes nothing."""
        if url == self.url:
            self._at = (self._at + 1) % len(self._urls)


def _end(url: str) -> tuple[str, int]:
    websocket_url(url)
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError(f"{url!r} is not the address of a server: it names no host")
    return parts.hostname, parts.port or _PORTS[parts.scheme]


def websocket_url(server_url: str) -> str:
    """A server's WebSocket base: ws for http, wss for https."""
    scheme, _, rest = server_url.rstrip("/").partition("://")
    if scheme not in _SCHEMES or not rest:
        raise ValueError(f"{server_url!r} is not the address of a server, like https://gpuaas.example.org")
    return f"{_SCHEMES[scheme]}://{rest}"
