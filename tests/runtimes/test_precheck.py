"""What is asked before work starts: every place that a recipe is made from, and each of them once."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from gpuaas.runtimes.build.precheck import unanswered
from gpuaas.runtimes.recipe import Recipe, Source
from gpuaas.runtimes.settings import Index, Settings

DEAD = "http://127.0.0.1:9"  # discard: nobody listens


class Site(http.server.ThreadingHTTPServer):
    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_HEAD(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(404 if "gone" in self.path else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(("127.0.0.1", 0), Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def settings(site: Site, **change: object) -> Settings:
    there = {
        "pypi_index": f"{site.url}/pypi",
        "npm_registry": f"{site.url}/npm",
        "debian_mirror": f"{site.url}/debian",
        "debian_security_mirror": f"{site.url}/security",
        "find_links": (f"{site.url}/wheels",),
        "indexes": (Index("cuda", f"{site.url}/cuda"),),
    }
    return Settings(**{**there, **change})  # type: ignore[arg-type]


def recipe(name: str, *sources: Source) -> Recipe:
    return Recipe(name, "1", sources=sources)


EVERYTHING = recipe(
    "everything",
    Source("deb", ("curl",), suite="bookworm"),
    Source("npm", ("npm@10",)),
    Source("pypi", ("torch",), index="cuda"),
)


def test_every_place_is_asked_once(site: Site) -> None:
    archive = Source("archive", (f"{site.url}/files/tool.tar.gz",), sha256="0" * 64)
    recipes = [EVERYTHING, recipe("more", Source("pypi", ("numpy",)), archive)]
    assert unanswered(recipes, "amd64", settings(site)) == {}
    wanted = ["/cuda/", "/debian/", "/files/tool.tar.gz", "/npm/", "/pypi/", "/security/", "/wheels/"]
    assert sorted(site.asked) == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"pypi_index": DEAD},
        {"npm_registry": DEAD},
        {"debian_mirror": DEAD},
        {"debian_security_mirror": DEAD},
        {"find_links": (DEAD,)},
        {"find_links": ("/no/such/directory",)},
        {"indexes": (Index("cuda", DEAD),)},
        {"indexes": (), "find_links": ()},
    ],
    ids=lambda change: " ".join(change),
)
def test_what_does_not_answer_is_told_with_the_recipe(site: Site, change: dict[str, object]) -> None:
    found = unanswered([EVERYTHING], "amd64", settings(site, **change))
    assert found["everything:1"].code == "index_unreachable"


def test_an_archive_that_is_gone(site: Site) -> None:
    gone = recipe("gone", Source("archive", (f"{site.url}/gone/tool.tar.gz",), sha256="0" * 64))
    elsewhere = recipe("arm", Source("archive", (f"{DEAD}/x.tar.gz",), sha256="0" * 64, architectures=("arm64",)))
    found = unanswered([gone, elsewhere, EVERYTHING], "amd64", settings(site))
    assert (list(found), "/gone/tool.tar.gz" in found["gone:1"].message) == (["gone:1"], True)
