"""`gpuaas ssh`: into a machine with the ssh that you have, directly or through the server."""

import os
import socket
import sys
from typing import TYPE_CHECKING

import click

from gpuaas.cli import known_hosts, output, reach
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session
from gpuaas.kit.errors import conflict

if TYPE_CHECKING:
    from gpuaas.sdk.types import AllocationView

PROBE_SECONDS = 2.0
_INSTEAD = {
    "queued": "It waits for capacity; `gpuaas events --follow` says when it is up.",
    "provisioning": "It is being made; try again in a moment.",
    "restarting": "It is on its way back; try again in a moment.",
    "stopped": "Its lease is over. `gpuaas extend` starts it again.",
    "unreachable": "Its node is silent; it comes back by itself, or ask your operator.",
    "failed": "`gpuaas show {name}` says why and what you can do.",
}


@click.command()
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--via-server", is_flag=True, help="Through the server, also when the machine could be reached directly.")
@click.option("--identity", "-i", metavar="FILE", help="The private key to use; by default ssh finds it.")
@click.option("--tty", "-t", is_flag=True, help="A terminal for the command too.")
@click.pass_obj
def ssh(
    session: Session, name: str, command: tuple[str, ...], via_server: bool, identity: str | None, tty: bool
) -> None:
    """ssh into a machine, by name or id; or run a command there: `gpuaas ssh NAME -- nvidia-smi -L`.

    The machine's host key comes from the server, so there is nothing to confirm. The exit code is ssh's.
    """
    found = session.client().allocations.show(name)
    _require_active(found)
    known = known_hosts.remember(session.server, [found])
    address = None if via_server else _reachable(found)
    options = reach.options(session.server, found, known, direct=address is not None)
    arguments = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    arguments += ["-i", identity] if identity else []
    arguments += ["-t"] if tty else []
    # Behind `--` neither the address nor the command can be taken for an option.
    _become(["ssh", *arguments, "--", address or found.id, *command])


def _require_active(found: "AllocationView") -> None:
    if found.state != "active":
        hint = _INSTEAD.get(found.state, "It is gone; `gpuaas launch` makes another one.")
        raise conflict("not_active", f"{found.name} is {found.state}.", hint.format(name=found.name))


def _reachable(found: "AllocationView") -> str | None:
    """The address that answers there; None where only the server can help."""
    address = reach.address(found)
    if address is None or found.endpoint is None:
        return None
    try:
        socket.create_connection((address, found.endpoint.port), PROBE_SECONDS).close()
    except OSError:
        output.note(f"{address} port {found.endpoint.port} does not answer; going through the server.")
        return None
    return address


def _become(arguments: list[str]) -> None:
    """In place of this process: terminal, signals and exit code are ssh's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(arguments[0], arguments)  # noqa: S606
    except OSError as error:
        raise Invalid(f"ssh cannot be started: {error.strerror}.", "Install the OpenSSH client.") from error
