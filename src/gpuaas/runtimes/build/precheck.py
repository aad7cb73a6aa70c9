"""What can be known before work starts: programs, room on the disk, registries that answer."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def check(recipe: Recipe, settings: Settings, shelf: Path, *, locked: bool) -> None:
    if missing := tools.missing():
        packages = " ".join(sorted(set(missing.values())))
        said = f"These programs are missing: {', '.join(sorted(missing))}."
        raise Problem("missing_program", 500, said, f"As root: apt-get install {packages}")
    tools.uv()
    room(shelf, LEAST_BYTES)
    if not locked:
        _registries(recipe, settings)


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


def _registries(recipe: Recipe, settings: Settings) -> None:
    kinds = {source.kind for source in recipe.sources}
    addresses = [settings.debian_mirror]  # the base comes from there, too
    addresses += [settings.npm_registry] if "npm" in kinds else []
    addresses += [settings.pypi_index] if "pypi" in kinds else []
    with web.client() as http:
        for address in addresses:
            _answers(http, address)


def _answers(http: httpx.Client, address: str) -> None:
    if not address.startswith("http"):
        if not Path(address.removeprefix("file://")).exists():
            raise Problem("index_unreachable", 503, f"There is no {address}.", "Check the settings of your site.")
        return
    try:
        http.head(address.rstrip("/") + "/", timeout=20.0)  # whatever it answers, it is there
    except httpx.HTTPError as error:
        raise web.unreachable(address, error) from error
