"""`gpuaas up`: everything on this machine, and a signed-in CLI."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuaas.cli import exits, keys, launch, output
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
@click.option("--simulate-gpus", metavar="NxMODEL",
              help="Such as 8xH100.  [default: as last time, else real ones, else 8xH100]")  # fmt: skip
@click.option("--host", type=click.Choice(["linux", "modelled"]),
              help="modelled: machines are only data.  [default: linux for root]")  # fmt: skip
@click.option("--image-store", metavar="DIRECTORY", help="Where base images are kept.")
@click.option("--first/--no-first", "launch_first", default=True, help="Launch a machine called hello the first time.")
@click.pass_obj
def up(session: Session, /, state_dir: Path, launch_first: bool, **asked: Any) -> int:
    """Start everything on this machine, sign in, and launch a first machine. Run it as often as you like."""
    place = Installation(state_dir)
    place.prepare()
    with place.locked():
        settings = _with_gpus(place.settings(**asked))
        place.remember(settings)
        first = not place.administrator().made
        client, node = Start(session, place, settings).everything()
        _register_key(client)
        _summary(session, place, settings, node, first=first)
        place.remember_administrator(replace(place.administrator(), made=True))
    if first and launch_first and not session.json:
        return _launch_hello(session)
    if not session.json:
        _next(session)
    return exits.OK


def _with_gpus(settings: Settings) -> Settings:
    """Simulated ones where there are none."""
    if settings.simulate_gpus or any(Path("/proc/driver").glob("nvidia/gpus/*")) or Path("/dev/kfd").exists():
        return settings
    return replace(settings, simulate_gpus="8xH100")


def _launch_hello(session: Session) -> int:
    """What a new user would type first, and the line with which they get in."""
    output.echo("")
    return launch.start(session, "hello", offer="h100-1")


def _next(session: Session) -> None:
    output.echo("\nNext:  gpuaas ls    gpuaas launch NAME --offer h100-1    gpuaas ssh NAME    gpuaas down")


def _register_key(client: "Client") -> None:
    """The user's own key, when none is registered yet; where there is none at all, one is made for this."""
    from gpuaas.sdk import ApiError

    if any(True for _ in client.keys.list()):
        return
    files = keys.own_keys() or [keys.make_own()]
    try:
        client.keys.add("default", keys.public_line(keys.read_key(files[0])))
    except (ApiError, Invalid) as error:
        output.note(f"{files[0]} was not added: {error}")
        return
    output.note(f"added your SSH key {files[0]}")


def _summary(session: Session, place: Installation, settings: Settings, node: "NodeView", *, first: bool) -> None:
    administrator, url = place.administrator(), f"http://127.0.0.1:{settings.port}"
    if session.json:
        shown = {"password": administrator.password} if first else {}
        output.json({"server": url, "email": administrator.email, **shown, "state_dir": str(place.directory),
                     "node": node.name, "gpus": node.gpus, "created": first})  # fmt: skip
        return
    kind = f"simulated GPUs ({output.safe(settings.simulate_gpus)})" if settings.simulate_gpus else "GPUs"
    output.echo(f"GPUaaS is up at {url} with {node.gpus} {kind}.")
    if settings.modelled:
        output.echo("Its machines are modelled, because real ones need root: nothing listens on their ports.")
    output.echo(f"You are signed in as {administrator.email}.")
    if first:
        output.echo(f"Password: {administrator.password}")
        output.echo(f"(shown this once; kept in {place.directory / 'admin.json'})")
    for name in ("GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_PROJECT"):
        if os.environ.get(name):
            output.note(f"{name} is set and wins over this login.")
