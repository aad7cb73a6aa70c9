"""`gpuaas up`: everything on this machine, and a signed-in CLI."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuaas.cli import keys, output
from gpuaas.cli.command import Command
from gpuaas.cli.installation import Installation, Settings, state_dir_option
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session
from gpuaas.cli.start import Start

if TYPE_CHECKING:
    from gpuaas.sdk import Client
    from gpuaas.sdk.types import NodeView


@click.command(cls=Command)
@state_dir_option
@click.option("--port", type=click.IntRange(1, 65535), help="Of the API.  [default: as last time, else 7070]")
@click.option("--simulate-gpus", metavar="NxMODEL", help="Such as 8xH100.  [default: as last time, else 8xH100]")
@click.pass_obj
def up(session: Session, state_dir: Path, port: int | None, simulate_gpus: str | None) -> None:
    """Start everything on this machine, with simulated GPUs, and sign in. Run it as often as you like."""
    place = Installation(state_dir)
    place.prepare()
    with place.locked():
        settings = place.settings(port, simulate_gpus)
        place.remember(settings)
        first = not place.administrator().made
        client, node = Start(session, place, settings).everything()
        key_count = _register_key(client)
        _summary(session, place, settings, node, first=first, key_count=key_count)
        place.remember_administrator(replace(place.administrator(), made=True))


def _register_key(client: "Client") -> int:
    """The user's own key, when none is registered yet. Returns how many there are."""
    from gpuaas.sdk import ApiError

    have = sum(1 for _ in client.keys.list())
    files = keys.own_keys()
    if have or not files:
        return have
    try:
        client.keys.add("default", keys.public_line(keys.read_key(files[0])))
    except (ApiError, Invalid) as error:
        output.note(f"{files[0]} was not added: {error}")
        return 0
    output.note(f"added your SSH key {files[0]}")
    return 1


def _summary(
    session: Session, place: Installation, settings: Settings, node: "NodeView", *, first: bool, key_count: int
) -> None:
    administrator, url = place.administrator(), f"http://127.0.0.1:{settings.port}"
    if session.json:
        shown = {"password": administrator.password} if first else {}
        output.json({"server": url, "email": administrator.email, **shown, "state_dir": str(place.directory),
                     "node": node.name, "gpus": node.gpus, "created": first})  # fmt: skip
        return
    output.echo(f"GPUaaS is up at {url} with {node.gpus} simulated GPUs ({output.safe(settings.simulate_gpus)}).")
    output.echo("Its machines are modelled: they take every step of a launch, but nothing listens on their ports yet.")
    output.echo(f"You are signed in as {administrator.email}.")
    if first:
        output.echo(f"Password: {administrator.password}")
        output.echo(f"(shown this once; kept in {place.directory / 'admin.json'})")
    output.echo("\nNext:")
    if not key_count:
        output.echo("  gpuaas key add laptop ~/.ssh/id_ed25519.pub")
    output.echo("  gpuaas launch hello --offer h100-1")
    output.echo("  gpuaas down")
    for name in ("GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_PROJECT"):
        if os.environ.get(name):
            output.note(f"{name} is set and wins over this login.")
