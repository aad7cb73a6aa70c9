"""What `gpuaas up` keeps on this machine: where it is, how it was started, and the first administrator's password."""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from gpuaas.cli.daemons import Daemon, write_private
from gpuaas.cli.invalid import Invalid

EMAIL, ORG, PROJECT, NODE = "admin@localhost", "local", "default", "local"


def default_state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/gpuaas")
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "gpuaas"


state_dir_option = click.option(
    "--state-dir",
    envvar="GPUAAS_STATE_DIR",
    show_envvar=True,
    type=click.Path(path_type=Path, file_okay=False),
    default=default_state_dir,
    metavar="DIRECTORY",
    help="Where everything is kept.  [default: /var/lib/gpuaas as root, else ~/.local/state/gpuaas]",
)


@dataclass(frozen=True)
class Settings:
    """How it was started last; every field is also an option of `gpuaas up`."""

    port: int = 7070
    simulate_gpus: str = ""  # empty: real GPUs if there are some, else 8xH100
    host: str = ""  # linux or modelled; empty: linux for root
    image_store: str = ""

    @property
    def modelled(self) -> bool:
        """Whether machines are only data: real ones need root."""
        return self.host == "modelled" or (not self.host and os.geteuid() != 0)


@dataclass(frozen=True)
class Administrator:
    email: str = EMAIL
    password: str = field(default="", repr=False)
    made: bool = False  # the store has been set up with it, and the password was shown


class Installation:
    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().absolute()
        self.postgres = self.directory / "postgres"
        self.agent_dir = self.directory / "agent"
        self.server = Daemon("server", self.directory)
        self.agent = Daemon("agent", self.directory)

    @property
    def exists(self) -> bool:
        return (self.directory / "up.json").exists()

    def prepare(self) -> None:
        # As root, PostgreSQL runs under an account of its own that has to get through to its directory.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=mode)
            self.directory.chmod(mode)
        except OSError as error:
            message = f"{self.directory} cannot be used: {error.strerror}."
            raise Invalid(message, "Choose another one with --state-dir.") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One `up` or `down` at a time."""
        with open(self.directory / "up.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def settings(self, **asked: Any) -> Settings:
        """What was asked for, else what was asked for last time, else the defaults."""
        known = self._read("up.json") | {name: value for name, value in asked.items() if value is not None}
        return Settings(**{each.name: known[each.name] for each in fields(Settings) if each.name in known})

    def node_options(self, settings: Settings) -> list[str]:
        """The agent's options: a second installation on this machine has other names for everything."""
        options = ["--state-dir", str(self.agent_dir), "--name", NODE]
        if settings.simulate_gpus:
            options += ["--simulate-gpus", settings.simulate_gpus]
        if settings.image_store:
            options += ["--image-store", settings.image_store]
        if self.directory != Path("/var/lib/gpuaas"):
            number = int(hashlib.sha256(str(self.directory).encode()).hexdigest()[:8], 16)
            own = f"{number:08x}"
            options += ["--run-dir", f"/run/gpuaas-{own}", "--prefix", f"gpuaas-{own}", "--interfaces", f"g{own[:5]}"]
            options += ["--pool", f"198.19.{number % 16 * 16}.0/20"]
        return options

    def remember(self, settings: Settings) -> None:
        write_private(self.directory / "up.json", json.dumps(asdict(settings)))

    def administrator(self) -> Administrator:
        """Written down before it is used, so that a crash in between locks nobody out."""
        known = self._read("admin.json")
        if known.get("password"):
            return Administrator(**known)
        fresh = Administrator(password=secrets.token_urlsafe(15))
        self.remember_administrator(fresh)
        return fresh

    def remember_administrator(self, administrator: Administrator) -> None:
        write_private(self.directory / "admin.json", json.dumps(asdict(administrator)))

    def _read(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = json.loads((self.directory / name).read_text())
            return found if isinstance(found, dict) else {}
        return {}
