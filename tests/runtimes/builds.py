"""What tests of real builds share: a shelf that outlives the run, and wheels that this machine's pip would find."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from gpuaas.runtimes import settings, tools
from gpuaas.runtimes.build.builder import Built, build
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.shelf import Shelf

CACHE = Path(os.environ.get("GPUAAS_TEST_CACHE", "/var/cache/gpuaas-test" if os.geteuid() == 0 else "/tmp/gpuaas-test"))
SHELF = Shelf(CACHE / "runtimes")
# For whoever builds with a home of their own: the uv that setup keeps aside, where none is on the PATH, is in this one.
WITH_UV = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")}

# Nothing else makes a build impossible: a machine where setup ran has them.
needs_tools = pytest.mark.skipif(bool(tools.missing()), reason=f"not installed: {', '.join(tools.missing())}")


def built(name: str) -> Path:
    """The image of one of ours. Whoever needs it first builds it, once on a machine."""
    recipe = Library().get(name)
    skip_without_sources(recipe)
    return made(recipe)


def made(recipe: Recipe) -> Path:
    with alone_with(recipe):
        done: Built = build(recipe, tools.architecture(), site(), SHELF)
    return SHELF.image(done.sha256)


@contextmanager
def alone_with(recipe: Recipe) -> Iterator[None]:
    """Two workers that need the same one do not both build it."""
    SHELF.make()
    with (SHELF.path / "locks" / f".{recipe.name}-{recipe.version}").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def site() -> Settings:
    return settings.load({"UV_FIND_LINKS": " ".join(find_links()), **os.environ})


def skip_without_sources(recipe: Recipe) -> None:
    """What PyPI does not have must be in an index that the site names, or lie where its find-links say."""
    needed = [source for source in recipe.sources if source.index and site().index(source.index) is None]
    items = [item.replace("==", "-") for source in needed for item in source.items if "==" in item]
    pages = [link for link in site().find_links if link.startswith("http")]  # only a build finds out what they have
    files = [file.name for link in site().find_links for file in Path(link.removeprefix("file://")).glob("*.whl")]
    if not pages and not all(any(file.startswith(f"{item}-") for file in files) for item in items):
        pytest.skip(f"this machine's pip has no find-links with {', '.join(items)}")


@cache
def find_links() -> list[str]:
    """Where pip looks for wheels besides its index, as this machine is configured."""
    asked = [sys.executable, "-m", "pip"] if _has_pip() else ["python3", "-m", "pip"]
    done = subprocess.run([*asked, "config", "list"], capture_output=True, text=True)
    lines = [line.partition("=") for line in done.stdout.splitlines()]
    found = [value.strip("'\"").split() for name, _, value in lines if name.endswith(".find-links")]
    return list(dict.fromkeys(link for links in found for link in links))


def _has_pip() -> bool:
    import importlib.util

    return importlib.util.find_spec("pip") is not None


def host() -> dict[str, tuple[int, int, int]]:
    """Everything that an installation would change: size, mode and time of every file of the system."""
    found = {}
    for top in ("/usr", "/etc", "/opt", "/boot", "/srv", "/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt"):
        for where, directories, files in os.walk(top):
            directories[:] = [name for name in directories if name != "__pycache__"]
            for name in (*files, *directories):
                path = os.path.join(where, name)
                try:
                    about = os.lstat(path)
                except FileNotFoundError:
                    continue
                is_directory = os.path.isdir(path) and not os.path.islink(path)
                found[path] = (
                    0 if is_directory else about.st_size,
                    about.st_mode,
                    0 if is_directory else about.st_ctime_ns,  # which nobody can set
                )
    return found
