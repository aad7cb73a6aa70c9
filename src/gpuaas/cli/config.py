"""The file that remembers where you are signed in. One account per server, so that a token meets only its own server.

`~/.config/gpuaas/config.json`, readable by nobody else. The environment wins over it: GPUAAS_SERVER, GPUAAS_TOKEN,
GPUAAS_PROJECT; GPUAAS_CONFIG is another place for the file.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuaas.cli.invalid import Invalid

DEFAULT_SERVER = "http://127.0.0.1:7070"


@dataclass(frozen=True)
class Account:
    token: str = field(default="", repr=False)
    email: str = ""
    project: str = ""


@dataclass(frozen=True)
class Config:
    server: str = ""
    accounts: dict[str, Account] = field(default_factory=dict)

    def account(self, server: str) -> Account:
        return self.accounts.get(server, Account())

    def with_account(self, server: str, account: Account, *, use: bool) -> "Config":
        return Config(server if use or not self.server else self.server, {**self.accounts, server: account})

    def without(self, server: str) -> "Config":
        kept = {name: account for name, account in self.accounts.items() if name != server}
        return replace(self, accounts=kept)


def path() -> Path:
    if chosen := os.environ.get("GPUAAS_CONFIG"):
        return Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "gpuaas" / "config.json"


def load() -> Config:
    file = path()
    try:
        text = file.read_text(encoding="utf-8")
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(file, str(error)) from error
    try:
        return _parsed(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise _unusable(file, "it is not what this version writes") from error


def save(config: Config) -> None:
    """Replaces the file in one step; never readable by others, not even for a moment."""
    file = Path(os.path.realpath(path()))
    text = json.dumps(
        {"server": config.server, "accounts": {k: asdict(v) for k, v in config.accounts.items()}}, indent=2
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=".config-")  # made with mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            output.write(text + "\n")
            output.flush()
            os.fsync(descriptor)
        os.replace(partial, file)
    except OSError as error:
        raise _unusable(file, str(error)) from error


def _parsed(found: Any) -> Config:
    accounts = {
        str(server): Account(**{name: str(account.get(name) or "") for name in ("token", "email", "project")})
        for server, account in found.get("accounts", {}).items()
    }
    return Config(str(found.get("server") or ""), accounts)


def _unusable(file: Path, why: str) -> Invalid:
    return Invalid(f"The file {file} cannot be used: {why}.", "Repair or remove it, then `gpuaas login`.")
