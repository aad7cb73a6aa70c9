"""The one file below ~/.ssh that is ours, and the one line in ~/.ssh/config that names it. No other line is touched."""

import os
import tempfile
from pathlib import Path

from gpuaas.cli.daemons import write_private
from gpuaas.cli.invalid import Invalid

INCLUDE = b"Include ~/.ssh/gpuaas.config"


def own_file() -> Path:
    return Path("~/.ssh/gpuaas.config").expanduser()


def write(text: str) -> None:
    try:
        own_file().parent.mkdir(mode=0o700, exist_ok=True)
        write_private(own_file(), text)
        _include()
    except OSError as error:
        raise _refused(error) from error


def remove() -> bool:
    """False: there was nothing of ours."""
    try:
        there = own_file().exists()
        own_file().unlink(missing_ok=True)
        lines = _lines()
        kept = [line for line in lines if not _ours(line)]
        if kept != lines:
            _replace(b"".join(kept))
    except OSError as error:
        raise _refused(error) from error
    return there or kept != lines


def _include() -> None:
    """At the top: below a Host line it would count for that host only, and the first word on an option wins."""
    lines = _lines()
    if not any(_ours(line) for line in lines):
        _replace(b"".join([INCLUDE, b"\n", *lines]))


def _ours(line: bytes) -> bool:
    return line.strip() == INCLUDE


def _lines() -> list[bytes]:
    try:
        return _config().read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _config() -> Path:
    """The file itself: many keep it elsewhere and have a link here."""
    return Path(os.path.realpath(Path("~/.ssh/config").expanduser()))


def _replace(content: bytes) -> None:
    """In one step, with the mode and the owner that it had."""
    file = _config()
    descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=".config-")  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(content)
            if file.exists():
                before = file.stat()
                os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, before.st_mode & 0o7777)
            output.flush()
            os.fsync(descriptor)
        os.replace(partial, file)
    except OSError:
        os.unlink(partial)
        raise


def _refused(error: OSError) -> Invalid:
    return Invalid(f"{error.filename or '~/.ssh'} cannot be changed: {error.strerror}.")
