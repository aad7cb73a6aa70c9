"""What can be known before work starts: programs, room on the disk, registries that answer."""

import errno
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import httpx

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import tools
from gpuaas.runtimes.lock import web
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.sizes import show_bytes

LEAST_BYTES = 2 * 10**9
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAKE_ROOM = "Make room, or use another --state-dir."
_NOTHING_BYTES = 2**20  # a disk with less than that is full
_ARCHIVES = (".gz", ".xz", ".bz2", ".zst", ".zip", ".tgz", ".txz", ".tar")


def check(recipe: Recipe, architecture: str, settings: Settings, shelf: Path, *, locked: bool) -> None:
    if missing := tools.missing():
        packages = " ".join(sorted(set(missing.values())))
        said = f"These programs are missing: {', '.join(sorted(missing))}."
        raise Problem("missing_program", 500, said, f"As root: apt-get install {packages}")
    tools.uv()
    room(shelf, LEAST_BYTES)
    if not locked and (silent := unanswered([recipe], architecture, settings)):
        raise silent[recipe.id]


def room(where: Path, needed: int) -> None:
    free = shutil.disk_usage(where).free
    if free < needed:
        said = f"{where} has {show_bytes(free)} free, and this needs {show_bytes(needed)}."
        raise Problem("disk_full", 507, said, _MAKE_ROOM)


@contextmanager
def noticing_a_full_disk(where: Path) -> Iterator[None]:
    """While work goes on: others write too. Whoever fails then is not at fault, be it a program or an archive."""
    try:
        yield
    except (Problem, OSError) as error:
        if not (isinstance(error, OSError) and error.errno in _FULL) and not _is_full(where):
            raise
        said = f"The disk of {where} is full."
        raise Problem("disk_full", 507, said, _MAKE_ROOM, detail=str(error)) from error


def _is_full(where: Path) -> bool:
    return shutil.disk_usage(where).free < _NOTHING_BYTES


def unanswered(recipes: Sequence[Recipe], architecture: str, settings: Settings) -> dict[str, Problem]:
    """By the id of a recipe: the first of the places that it is made from that is not there. Each is asked once."""
    needs = {recipe.id: _places(recipe, architecture, settings) for recipe in recipes}
    addresses = sorted({place for places in needs.values() for place in places if isinstance(place, str)})
    with web.client() as http, ThreadPoolExecutor(max_workers=8) as several:
        silent = dict(zip(addresses, several.map(lambda address: _silence(http, address), addresses), strict=True))
    found = {}
    for id, places in needs.items():
        problems = (place if isinstance(place, Problem) else silent[place] for place in places)
        if problem := next((each for each in problems if each is not None), None):
            found[id] = problem
    return found


def _places(recipe: Recipe, architecture: str, settings: Settings) -> list[str | Problem]:
    """Addresses, and what has none."""
    found: list[str | Problem] = [settings.debian_mirror, settings.debian_security_mirror]  # the base comes from there
    for source in recipe.sources:
        if source.architectures and architecture not in source.architectures:
            continue
        if source.kind == "npm":
            found.append(settings.npm_registry)
        elif source.kind == "archive":
            found += source.items
        elif source.kind == "pypi":
            found += [settings.pypi_index, *settings.find_links]
        if source.index and (index := settings.index(source.index)):
            found.append(index.url)
        elif source.index and not (source.kind == "pypi" and settings.find_links):
            said = f"{recipe.id} needs an index called {source.index}, and this site has none."
            found.append(Problem("index_unreachable", 503, said, "See `indexes` in docs/guides/runtimes.md."))
    return found


def _silence(http: httpx.Client, address: str) -> Problem | None:
    """Whatever it answers, it is there; but for a file, which is there or not."""
    if not address.startswith("http"):
        if Path(address.removeprefix("file://")).exists():
            return None
        return Problem("index_unreachable", 503, f"There is no {address}.", "Check the settings of your site.")
    is_file = PurePosixPath(urlsplit(address).path).name.endswith(_ARCHIVES)
    try:
        answer = http.head(address if is_file else address.rstrip("/") + "/", timeout=20.0)
    except httpx.HTTPError as error:
        return web.unreachable(address, error)
    if is_file and answer.status_code in (404, 410):
        return Problem("index_unreachable", 503, f"There is no {address}.", "Correct the address in the recipe.")
    return None
