"""What can be known before work starts: programs, room on the disk, registries that answer."""

import shutil
from pathlib import Path

import httpx

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import tools
from gpuaas.runtimes.lock import web
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.sizes import show_bytes

LEAST_BYTES = 2 * 10**9


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
        raise Problem("disk_full", 507, said, "Make room, or use another --state-dir.")


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
