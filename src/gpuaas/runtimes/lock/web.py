"""HTTP to the registries, with the certificates of this machine, as apt and curl use them."""

import ssl
from urllib.parse import urlsplit

import httpx

from gpuaas.kit.errors import Problem

TIMEOUT = httpx.Timeout(30.0, read=120.0)


def client() -> httpx.Client:
    transport = httpx.HTTPTransport(retries=3, verify=ssl.create_default_context())
    proxied = {
        pattern: httpx.HTTPTransport(retries=3, verify=ssl.create_default_context(), proxy=url)
        for pattern, url in _proxies().items()
    }
    return httpx.Client(timeout=TIMEOUT, follow_redirects=True, transport=transport, mounts=proxied)


def _proxies() -> dict[str, str | None]:
    from urllib.request import getproxies

    found = getproxies()
    exempt = {f"all://{host.strip().lstrip('.')}": None for host in found.pop("no", "").split(",") if host.strip()}
    return {f"{scheme}://": url for scheme, url in found.items() if scheme in ("http", "https", "all")} | exempt


def unreachable(url: str, error: Exception) -> Problem:
    host = urlsplit(url).netloc or url
    return Problem(
        "index_unreachable",
        503,
        f"{host} does not answer: {error}.",
        "Check the network, or name a mirror of your site: see docs/guides/runtimes.md.",
    )
