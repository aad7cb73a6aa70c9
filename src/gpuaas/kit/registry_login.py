"""How a registry is told who asks: its challenge, and credentials from a file in the form of Docker's config.json."""

import base64
import binascii
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec

from gpuaas.kit.errors import Problem

_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")


class _Entry(msgspec.Struct, frozen=True):
    auth: str = ""  # base64 of name:password
    username: str = ""
    password: str = ""


class _File(msgspec.Struct, frozen=True):
    auths: dict[str, _Entry] = {}


class _Issued(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


def basic(file: Path | None, place: str) -> str:
    """What is sent by Basic for `place`, such as registry.example/team/runtimes. Empty: the file knows nobody there."""
    if file is None:
        return ""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=_File).auths
    except OSError as error:
        raise _unusable(file, f"{error.strerror}") from error
    except (msgspec.MsgspecError, ValueError):  # whose words could hold a part of what it says
        raise _unusable(file, "it is not like Docker's config.json") from None
    entries = {re.sub(r"^https?://", "", key).rstrip("/"): entry for key, entry in known.items()}
    parts = place.split("/")
    for length in range(len(parts), 0, -1):  # as podman has it: one for a part of a registry wins
        if entry := entries.get("/".join(parts[:length])):
            return f"Basic {_encoded(file, entry)}"
    return ""


def _encoded(file: Path, entry: _Entry) -> str:
    if entry.username and entry.password:
        return base64.b64encode(f"{entry.username}:{entry.password}".encode()).decode()
    try:
        if b":" in base64.b64decode(entry.auth, validate=True):
            return entry.auth
    except (binascii.Error, ValueError):
        pass
    raise _unusable(file, "it has neither a name and password nor `auth` (helpers are not asked)")


def token_address(challenge: str, secure: bool, scope: str) -> str | None:
    """Where a token is issued for what was refused; None: the registry asks for none."""
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() != "bearer":
        return None
    said = dict(_PARAMETER.findall(rest))
    realm = urlsplit(said.get("realm", ""))
    if realm.scheme not in (("https",) if secure else ("http", "https")) or not realm.hostname or realm.username:
        raise Problem("registry_refused", 502, "The registry names no token service that can be asked.")
    asked = {"service": said.get("service", ""), "scope": said.get("scope") or scope}
    query = "&".join(part for part in (realm.query, urlencode({k: v for k, v in asked.items() if v})) if part)
    return realm._replace(query=query, fragment="").geturl()


def issued(answer: bytes) -> str:
    try:
        found = msgspec.json.decode(answer, type=_Issued)
    except (msgspec.MsgspecError, ValueError):
        found = _Issued()
    token = found.token or found.access_token
    if _TOKEN.fullmatch(token) is None:
        raise Problem("registry_refused", 502, "The registry's token service issues no token.")
    return f"Bearer {token}"


def _unusable(file: Path, why: str) -> Problem:
    said = f"The registry's credentials in {file} cannot be used: {why}."
    return Problem("bad_credentials_file", 422, said, "`docker login` and `podman login` write such a file.")
