"""How ssh gets to a machine, in the words of ssh_config. Nothing that a server says can become another option."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuaas.cli import config as settings
from gpuaas.cli.invalid import Invalid

if TYPE_CHECKING:
    from gpuaas.sdk.types import AllocationView

USER = "gpu"
_ID = re.compile(r"al-[a-z2-7]{16}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}")


def options(server: str, found: "AllocationView", known_hosts: Path, *, direct: bool) -> dict[str, str]:
    """Without the address, which is the destination on a command line and HostName in a file."""
    user = found.endpoint.user if found.endpoint else USER
    if not _ID.fullmatch(found.id) or not _USER.fullmatch(user):
        raise Invalid("The server's answer names no machine that ssh could be given.")
    made = {
        "User": user,
        "HostKeyAlias": found.id,
        "UserKnownHostsFile": _quoted(known_hosts),
        "StrictHostKeyChecking": "yes",
    }
    if direct and found.endpoint:
        return {"Port": str(int(found.endpoint.port)), **made}
    return {**made, "ProxyCommand": _proxy(server, found.id)}


def address(found: "AllocationView") -> str | None:
    """Where the node says that the machine can be reached, if that is an address."""
    host = found.endpoint.host if found.endpoint else ""
    return host if _ADDRESS.fullmatch(host) else None


def _proxy(server: str, id: str) -> str:
    """A line for a shell. Names this very installation, because ssh may be started where no PATH leads here."""
    words = [sys.executable, "-P", "-m", "gpuaas.cli.main", "ssh-proxy", "--server", server, id]
    place = settings.path().absolute()
    if place != Path("~/.config/gpuaas/config.json").expanduser():
        words = ["env", f"GPUAAS_CONFIG={place}", *words]
    if any(ord(character) < 32 for word in words for character in word):
        raise Invalid("A path or the server's address has control characters in it, which ssh cannot be given.")
    return shlex.join(words).replace("%", "%%")


def _quoted(file: Path) -> str:
    text = os.fspath(file.absolute())
    if any(ord(character) < 32 or character in '"\\' for character in text) or "${" in text:
        raise Invalid(f"ssh cannot be told of the file {text!r}.", "Set GPUAAS_CONFIG to a plain path.")
    return '"' + text.replace("%", "%%") + '"'
