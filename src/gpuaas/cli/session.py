"""What a command works with: server, token and project, from options, environment and file in that order."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuaas.cli import config as settings
from gpuaas.cli.config import Config
from gpuaas.cli.invalid import Invalid

if TYPE_CHECKING:
    from gpuaas.sdk import Client


@dataclass
class Session:
    json: bool = False
    correlation_id: str = ""  # of everything that one command asks of the server
    _config: Config | None = field(default=None, repr=False)
    _client: "Client | None" = field(default=None, repr=False)
    _opened: "list[Client]" = field(default_factory=list, repr=False)

    @property
    def config(self) -> Config:
        if self._config is None:
            self._config = settings.load()
        return self._config

    def save(self, changed: Config) -> None:
        settings.save(changed)
        self._config = changed

    @property
    def server(self) -> str:
        return (os.environ.get("GPUAAS_SERVER") or self.config.server or settings.DEFAULT_SERVER).rstrip("/")

    @property
    def token(self) -> str:
        return os.environ.get("GPUAAS_TOKEN") or self.config.account(self.server).token

    def project(self, given: str | None) -> str | None:
        """What was asked for, or the default; None leaves it to the server, which knows people with one project."""
        return given or os.environ.get("GPUAAS_PROJECT") or self.config.account(self.server).project or None

    def named_project(self, given: str | None) -> str:
        """For what cannot leave the project out."""
        if chosen := self.project(given):
            return chosen
        seen = list(self.client().projects.list())
        if len(seen) == 1:
            return seen[0].id
        listed = ", ".join(project.slug for project in seen) or "you are in none yet"
        raise Invalid("Which project?", f"Use --project or `gpuaas project use`: {listed}.")

    def client(self) -> "Client":
        """Signed in, or an error that says how to be."""
        if self._client is None:
            if not self.token:
                raise not_signed_in(self.server)
            self._client = self.connect(self.server, self.token)
        return self._client

    def connect(self, server: str, token: str | None) -> "Client":
        """Closes with the session."""
        from gpuaas.sdk import Client

        client = Client(server, token, correlation_id=self.correlation_id)
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.close()


def not_signed_in(server: str) -> Exception:
    from gpuaas.sdk import ApiError

    return ApiError(
        "not_signed_in",
        401,
        f"You are not signed in to {server}.",
        "Run `gpuaas login`, or `gpuaas up` for a server on this machine.",
    )
