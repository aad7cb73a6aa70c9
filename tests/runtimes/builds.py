"""What tests of real builds share: a shelf that outlives the run, and wheels that this machine's pip would find."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuaas.runtimes import tools
from gpuaas.runtimes.shelf import Shelf

CACHE = Path(os.environ.get("GPUAAS_TEST_CACHE", "/var/cache/gpuaas-test" if os.geteuid() == 0 else "/tmp/gpuaas-test"))
SHELF = Shelf(CACHE / "runtimes")

# Nothing else makes a build impossible: a machine where setup ran has them.
needs_tools = pytest.mark.skipif(bool(tools.missing()), reason=f"not installed: {', '.join(tools.missing())}")


def find_links() -> list[str]:
    """Where pip looks for wheels besides its index, as this machine is configured."""
    asked = [sys.executable, "-m", "pip"] if _has_pip() else ["python3", "-m", "pip"]
    done = subprocess.run([*asked, "config", "list"], capture_output=True, text=True)
    lines = [line.partition("=") for line in done.stdout.splitlines()]
    return [value.strip("'\"") for name, _, value in lines if name.endswith(".find-links")]


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
                    0 if is_directory else about.st_mtime_ns,
                )
    return found
