"""The host keys of machines, as the server knows them: one private file for each server, machines by their id."""

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpuaas.cli import config as settings
from gpuaas.cli.daemons import write_private
from gpuaas.cli.invalid import Invalid

if TYPE_CHECKING:
    from gpuaas.sdk.types import AllocationView

# One key and nothing else: no marker, no further line, no pattern.
_KEY = re.compile(r"((?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-zA-Z0-9@.-]+ [A-Za-z0-9+/]+={0,3})(?: [ -~]*)?")


def remember(server: str, machines: Iterable["AllocationView"], *, only: bool = False) -> Path:
    """Writes their keys down and returns the file. `only` forgets all others."""
    lines = {machine.id: f"{machine.id} {_key(machine)}" for machine in machines}
    file = _directory() / re.sub(r"[^A-Za-z0-9.-]+", "_", server)
    try:
        with open(file.with_name(f".{file.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two that start at once must not forget each other's machine
            before = {} if only else _read(file)
            after = {**before, **lines}
            if after != before or not file.exists():
                write_private(file, "\n".join(after.values()))
    except OSError as error:
        raise Invalid(f"The file {file} cannot be written: {error.strerror}.") from error
    return file


def _read(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    return {line.partition(" ")[0]: line for line in lines if line}


def _key(machine: "AllocationView") -> str:
    found = _KEY.fullmatch(machine.host_key)
    if found is None:
        raise Invalid(f"The server has no usable host key of {machine.name}.", "Try again when the machine is active.")
    return found[1]


def _directory() -> Path:
    directory = settings.path().parent / "known_hosts"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        ours = directory.stat().st_uid == os.geteuid()
    except OSError as error:
        raise Invalid(f"The directory {directory} cannot be made: {error.strerror}.") from error
    if not ours:
        raise Invalid(f"The directory {directory} belongs to somebody else.", "Set GPUAAS_CONFIG to a place of yours.")
    return directory
