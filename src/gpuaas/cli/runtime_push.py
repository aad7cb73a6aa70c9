"""`gpuaas runtime push`: what is built here, for nodes that fetch images from a registry."""

from pathlib import Path

import click

from gpuaas.cli import output, runtime_chosen
from gpuaas.cli.command import Command
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.session import Session


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--to", "place", envvar="GPUAAS_IMAGE_REGISTRY", show_envvar=True, required=True, metavar="REPOSITORY",
              help="Such as registry.example/team/runtimes.")  # fmt: skip
@click.option("--credentials", envvar="GPUAAS_IMAGE_REGISTRY_CREDENTIALS", show_envvar=True, metavar="FILE",
              type=click.Path(path_type=Path, dir_okay=False), help="Like Docker's config.json.")  # fmt: skip
@state_dir_option
@click.pass_obj
def push(session: Session, names: tuple[str, ...], place: str, credentials: Path | None, state_dir: Path) -> None:
    """Send runtimes that are built here to an OCI registry. Agents with --image-registry fetch images from there.

    For every architecture that is here. What the registry has already is not sent again. `deploy` publishes: only that
    makes a version available.
    """
    from gpuaas.kit.registry import Place, Registry
    from gpuaas.runtimes import push as pushing
    from gpuaas.runtimes.shelf import Shelf

    registry, shelf = Registry(Place.parse(place), credentials), Shelf(state_dir / "runtimes")
    chosen = runtime_chosen.built(names, (), shelf)
    done = [
        pushing.push(bundle, version, shelf, registry, output.note, architecture)
        for bundle, version in chosen
        for architecture in shelf.builds(bundle, version) or [""]
    ]
    if session.json:
        return output.json_page(done)
    for each in done:
        sent = f"{each.sent_bytes} bytes were sent" if each.sent_bytes else "all of it was there"
        output.echo(output.safe(f"{each.runtime} is at {each.reference} ({sent})"))
    return None
