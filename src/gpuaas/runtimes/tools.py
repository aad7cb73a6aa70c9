"""The programs that a build needs on the machine, and where they come from when they are missing."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from gpuaas.kit.errors import Problem

PROGRAMS = {
    "apt-get": "apt",
    "bwrap": "bubblewrap",
    "dpkg-deb": "dpkg",
    "fsck.erofs": "erofs-utils",
    "mkfs.erofs": "erofs-utils",
    "patchelf": "patchelf",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def uv() -> str:
    """The one on the PATH, or the one that `make setup` keeps aside."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = shutil.which("uv") or shutil.which(str(base / "gpuaas" / "uv" / "bin" / "uv"))
    if found is None:
        raise Problem("missing_program", 500, "uv is not installed.", "Install it: `pip install uv`.")
    return found


def uv_binary() -> str:
    """The program itself, which runs in a sandbox too: what version managers put on the PATH are scripts."""
    found = os.path.realpath(uv())
    with open(found, "rb") as file:
        if file.read(4) == b"\x7fELF":
            return found
    asked = subprocess.run(
        ["python3", "-c", "import uv; print(uv.find_uv_bin())"], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0 or not os.path.exists(asked.stdout.strip()):
        raise Problem("missing_program", 500, f"{found} is not uv itself.", "Install it: `pip install uv`.")
    return os.path.realpath(asked.stdout.strip())


def missing() -> dict[str, str]:
    """Program -> Debian package."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return {program: package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}


def architecture() -> str:
    if not here():
        said = f"Runtimes are not made for {platform.machine()}."
        raise Problem("unknown_architecture", 422, said, "Use amd64 or arm64.")
    return here()


def here() -> str:
    """The architecture of this machine; empty if runtimes are not made for it."""
    return _ARCHITECTURES.get(platform.machine(), "")
