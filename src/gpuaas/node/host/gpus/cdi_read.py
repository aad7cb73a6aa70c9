"""Reads CDI specs from directories that only root can write: whoever can write a spec is root on this host."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus.cdi import ALLOWED_HOOKS, AllowedHook, Device, Refused, Spec, parse

# The later one wins, as the specification asks.
DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
MAX_BYTES = 1024 * 1024
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Entry:
    device: Device
    spec: Spec
    file: str


@dataclass(frozen=True)
class Library:
    devices: dict[str, Entry] = field(default_factory=dict)  # by qualified name: vendor.com/class=name
    refused: dict[str, str] = field(default_factory=dict)  # file or device: why


def read(
    directories: Sequence[Path] = DIRECTORIES, *, allowed_hooks: Sequence[AllowedHook] = ALLOWED_HOOKS, owner: int = 0
) -> Library:
    """Whatever can be used; what cannot is named with the reason. An absent directory is an empty one."""
    library = Library()
    for directory in directories:
        try:
            found = _read_directory(Path(os.path.realpath(directory)), allowed_hooks, owner, library.refused)
        except FileNotFoundError:
            continue
        except (Refused, OSError) as error:
            library.refused[str(directory)] = str(error)
        else:
            library.devices.update(found)
    return library


def check_program(path: str, owner: int = 0) -> None:
    """What a hook runs must be as safe as the spec that names it."""
    try:
        info = os.stat(path)
        _check_ancestors(Path(os.path.realpath(path)).parent, owner)
    except (Refused, OSError) as error:
        raise HostError("use the hook", path, str(error), transient=False) from error
    if not stat.S_ISREG(info.st_mode) or info.st_uid != owner or info.st_mode & _OTHERS_WRITE:
        raise HostError("use the hook", path, "others than root can change it", transient=False)


def _read_directory(
    directory: Path, allowed_hooks: Sequence[AllowedHook], owner: int, refused: dict[str, str]
) -> dict[str, Entry]:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_ancestors(directory, owner)
        info = os.fstat(handle)
        if info.st_uid != owner or info.st_mode & _OTHERS_WRITE:
            raise Refused("others than root can write into this directory")
        devices: dict[str, Entry] = {}
        for name in sorted(os.listdir(handle)):
            file = str(directory / name)
            if not name.endswith((".json", ".yaml")) or name.startswith("."):
                continue
            try:
                data = _read_file(handle, name, owner)
                spec = _parsed(data, name.endswith(".yaml"), tuple(allowed_hooks))
            except (Refused, OSError) as error:
                refused[file] = str(error)
                continue
            _add(devices, spec, file, refused)
        return devices
    finally:
        os.close(handle)


@lru_cache(maxsize=64)
def _parsed(data: bytes, yaml: bool, allowed_hooks: tuple[AllowedHook, ...]) -> Spec:
    """The files are read at every launch, and are the same as a moment ago."""
    return parse(data, yaml=yaml, allowed_hooks=allowed_hooks)


def _add(devices: dict[str, Entry], spec: Spec, file: str, refused: dict[str, str]) -> None:
    for device in spec.devices:
        name = f"{spec.kind}={device.name}"
        if name in refused:
            continue
        if name in devices:
            refused[name] = f"it is in {devices.pop(name).file} and in {file}"
        else:
            devices[name] = Entry(device, spec, file)


def _read_file(directory: int, name: str, owner: int) -> bytes:
    # O_NONBLOCK: a FIFO in the place of a file must not hang the agent.
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise Refused("it is not a regular file")
        if info.st_uid != owner or info.st_mode & _OTHERS_WRITE or info.st_nlink != 1:
            raise Refused("others than root can change it")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Refused(f"it has more than {MAX_BYTES} bytes")
    return data


def _check_ancestors(directory: Path, owner: int) -> None:
    """In a sticky directory, as /tmp is, others can add entries but not replace ours."""
    for parent in directory.parents:
        info = os.stat(parent)
        if info.st_uid not in (0, owner) or (info.st_mode & _OTHERS_WRITE and not info.st_mode & stat.S_ISVTX):
            raise Refused(f"others than root can replace it: see {parent}")
