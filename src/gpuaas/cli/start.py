"""Brings the processes of one machine up, in order, and waits for each. Adopts what runs already."""

import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuaas.cli import output
from gpuaas.cli.config import Account
from gpuaas.cli.installation import NODE, ORG, PROJECT, Installation, Settings
from gpuaas.cli.server import server
from gpuaas.cli.session import Session
from gpuaas.kit.errors import Problem

if TYPE_CHECKING:
    from gpuaas.sdk import Client
    from gpuaas.sdk.types import NodeView

_PATIENCE_SECONDS = 60.0
_BUILD_SECONDS = 1200.0
_FIRST_GPUS = 8  # of the node that the first offers are made for


class Start:
    def __init__(self, session: Session, place: Installation, settings: Settings) -> None:
        self.session = session
        self.place = place
        self.settings = settings
        self.url = f"http://127.0.0.1:{settings.port}"
        self._join_token: str | None = None
        self._asked_to_join = False
        self._said = ""

    def everything(self) -> "tuple[Client, NodeView]":
        began = datetime.now(UTC)
        self._server()
        # All three start at once: this process sets up a new store, the agent asks until the server answers.
        token = "" if self.place.administrator().made else self._set_up()
        started = self._agent(None)
        self._wait("server", self._server_answers)
        client = self._signed_in(token)
        started = self._agent(client) or started  # again, if it had to join and could not
        # The first time it builds the base image, which takes a minute or more.
        self._wait("agent", lambda: self._node_ready(client, began if started else None), _BUILD_SECONDS)
        return client, client.nodes.show(NODE)

    def _server(self) -> None:
        place = self.place
        arguments = ["server", "--port", str(self.settings.port), "--state-dir", str(place.directory)]
        database_url = os.environ.get("GPUAAS_DATABASE_URL", "")
        if place.server.runs(arguments, database_url):
            return
        place.server.stop(10.0)
        if _taken(self.settings.port):
            raise Problem("port_taken", 409, f"Something else listens on port {self.settings.port}.",
                          "Choose another one: `gpuaas up --port 7071`.")  # fmt: skip
        self._say("starting the server")
        place.server.start(arguments, _environment(**_server_settings()), database_url)

    def _set_up(self) -> str:
        """The first administrator, project and offers. Returns a token."""
        from gpuaas.control.bootstrap import bootstrap
        from gpuaas.control.store.embedded import Embedded

        self._say("setting up a new store")
        administrator = self.place.administrator()
        made = bootstrap(
            os.environ.get("GPUAAS_DATABASE_URL") or Embedded(self.place.postgres).start(),
            email=administrator.email,
            password=administrator.password,
            org=ORG,
            project=PROJECT,
            node=NODE,
            share=_share(),
        )
        self._join_token = made.join_token
        return made.token

    def _server_answers(self) -> bool:
        from gpuaas.sdk import Client, GpuaasError
        from gpuaas.sdk.retry import Retry

        self.place.server.require(f"Look into {self.place.server.log}.")
        try:
            with Client(self.url, timeout_seconds=5.0, retry=Retry(attempts=1)) as client:
                client.ready()
        except GpuaasError:
            return False
        return True

    def _signed_in(self, token: str) -> "Client":
        """With the token of last time, by password, or through the database, whichever works first."""
        from gpuaas.sdk import ApiError

        administrator, known = self.place.administrator(), self.session.config.account(self.url)
        client = self.session.connect(self.url, token or known.token or None)
        try:
            client.whoami()
            token = token or known.token
        except ApiError:
            try:
                token = client.login(administrator.email, administrator.password).secret
            except ApiError:
                token = self._set_up()
                client = self.session.connect(self.url, token)
        account = Account(token, administrator.email, known.project or PROJECT)
        self.session.save(self.session.config.with_account(self.url, account, use=True))
        return client

    def _agent(self, client: "Client | None") -> bool:
        """Starts the agent if need be. With a client it can get a new join token."""
        place = self.place
        host = "modelled" if self.settings.modelled else "linux"
        arguments = ["agent", "run", "--server", self.url, "--host", host, *place.node_options(self.settings)]
        if place.agent.runs(arguments):
            return False
        place.agent.stop(10.0)
        self._say("starting the agent")
        self._asked_to_join = client is not None
        join_token = self._join_token or (self._needed_join_token(client) if client else "")
        # In the environment, because everybody on the machine can read the arguments of a process.
        place.agent.start(arguments, _environment(GPUAAS_JOIN_TOKEN=join_token, **_agent_settings()))
        return True

    def _needed_join_token(self, client: "Client") -> str:
        from gpuaas.sdk import ApiError

        try:
            client.nodes.show(NODE)
        except ApiError as error:
            if error.status != 404:
                raise
            return client.nodes.join_token(approve_slots=True).secret
        return ""

    def _node_ready(self, client: "Client", since: datetime | None) -> bool:
        from gpuaas.sdk import ApiError

        if not self.place.agent.running() and not self._asked_to_join:
            self._agent(client)  # it started before there was a server to get a join token from
        self.place.agent.require(f"Look into {self.place.agent.log}.")
        try:
            node = client.nodes.show(NODE)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        heard = since is None or (node.last_seen_at is not None and node.last_seen_at >= since)
        if heard and not node.ready and node.reason != self._said:
            self._said = node.reason
            self._say(node.reason)
        return heard and node.state == "ready" and node.ready and any(s.state == "approved" for s in node.slots)

    def _wait(self, name: str, is_there: Callable[[], bool], patience_seconds: float = _PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + patience_seconds
        while not is_there():
            if time.monotonic() > deadline:
                log = self.place.directory / f"{name}.log"
                message = f"The {name} is not ready after {patience_seconds:.0f} s. {self._said}".strip()
                raise Problem("not_ready", 500, message, f"Look into {log}, then run `gpuaas up` again.")
            time.sleep(0.05)

    def _say(self, text: str) -> None:
        if not self.session.json:
            output.note(f"{text} ...")


def _environment(**extra: str) -> dict[str, str]:
    """Ours without what would steer or tempt the child, and with what it needs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
    return {**kept, **{name: value for name, value in extra.items() if value}}


def _server_settings() -> dict[str, str]:
    """What `gpuaas server` takes from the environment is meant for the one that we start, too."""
    names = [option.envvar for option in server.params if isinstance(option.envvar, str)]
    return {name: os.environ[name] for name in names if name in os.environ}


def _agent_settings() -> dict[str, str]:
    """The same for the agent, but for what we tell it ourselves."""
    names = ("GPUAAS_IMAGE_REGISTRY", "GPUAAS_IMAGE_REGISTRY_CREDENTIALS")
    return {name: os.environ[name] for name in names if name in os.environ}


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _share() -> tuple[int, int]:
    """CPUs and MiB of memory for each GPU of a node like this one."""
    mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1, (os.cpu_count() or 1) // _FIRST_GPUS), max(256, mib // _FIRST_GPUS // 1024 * 1024)
