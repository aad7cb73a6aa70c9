"""`gpuaas ssh-proxy`: stdin and stdout become a stream to a machine. For ssh, as its ProxyCommand."""

import os
import sys
import threading
from typing import TYPE_CHECKING

import click

from gpuaas.cli.session import Session, not_signed_in

if TYPE_CHECKING:
    from gpuaas.sdk import Client
    from gpuaas.sdk.streams import Stream

CHUNK_BYTES = 32 * 1024


@click.command(hidden=True)
@click.argument("machine")
@click.option("--server", metavar="URL", help="Instead of the one that you use.")
@click.pass_obj
def ssh_proxy(session: Session, machine: str, server: str | None) -> None:
    """Connect stdin and stdout with the sshd of a machine, through the server."""
    with _client(session, server).allocations.connect(machine) as stream:
        threading.Thread(target=_send, args=(stream,), daemon=True).start()
        _print(stream)


def _client(session: Session, server: str | None) -> "Client":
    if server is None or server.rstrip("/") == session.server:
        return session.client()
    token = session.config.account(server.rstrip("/")).token  # GPUAAS_TOKEN is for the server in use, and no other
    if not token:
        raise not_signed_in(server)
    return session.connect(server, token)


def _send(stream: "Stream") -> None:
    while data := os.read(sys.stdin.fileno(), CHUNK_BYTES):
        stream.send(data)
    stream.end()


def _print(stream: "Stream") -> None:
    output = sys.stdout.fileno()
    try:
        while data := stream.receive():
            while data:
                data = data[os.write(output, data) :]
    except BrokenPipeError:  # ssh is gone
        return
