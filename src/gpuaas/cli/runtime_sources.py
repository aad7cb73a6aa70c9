"""`gpuaas runtime source|pull`: runtimes that others publish, from mirrors that nobody has to trust."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command, Group
from gpuaas.cli.confirm import confirm
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.runtimes.manifest import Manifest
    from gpuaas.runtimes.shelf import Shelf


@click.group(cls=Group)
def source() -> None:
    """Places that runtimes of others come from, and whom each of them trusts."""


@source.command("add")
@click.argument("name")
@click.argument("place")
@click.option("--root", required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
              help="The publisher's N.root.json, got by a way that the mirror does not control.")  # fmt: skip
@state_dir_option
@click.pass_obj
def add(session: Session, name: str, place: str, root: Path, state_dir: Path) -> None:
    """Pin a source: its PLACE is a directory or https:// address; the keys in --root are trusted from here on.

    Compare the fingerprint that is printed with what the publisher says. The mirror itself is never trusted.
    """
    import hashlib

    from gpuaas.runtimes.index import sources

    data = root.read_bytes()
    pinned = sources.add(_shelf(state_dir), name, place, data).signed
    digest, role = hashlib.sha256(data).hexdigest(), pinned.roles["root"]
    if session.json:
        return output.json({"name": name, "place": sources.place_of(place), "root_version": pinned.version,
                            "root_sha256": digest, "threshold": role.threshold, "keys": role.keyids})  # fmt: skip
    output.echo(output.safe(f"{name} is pinned: root {pinned.version}, {role.threshold} of {len(role.keyids)} keys"))
    return output.echo(f"sha256 of its root: {digest}")


@source.command("list")
@state_dir_option
@click.pass_obj
def list_(session: Session, state_dir: Path) -> None:
    """List the sources that are pinned here."""
    from gpuaas.runtimes.index import sources

    found = sources.every(_shelf(state_dir))
    if session.json:
        return output.json_page(found)
    empty = "None is pinned here: `gpuaas runtime source add NAME PLACE --root FILE`."
    return output.table(("NAME", "PLACE"), [(each.name, each.place) for each in found], empty=empty)


@source.command()
@click.argument("name")
@click.argument("place")
@state_dir_option
@click.pass_obj
def move(session: Session, name: str, place: str, state_dir: Path) -> None:
    """Take a source from another PLACE, such as a disk that was brought: whom it trusts stays."""
    from gpuaas.runtimes.index import sources

    moved = sources.move(_shelf(state_dir), name, place)
    return output.json(moved) if session.json else output.echo(output.safe(f"{moved.name} is at {moved.place}"))


@source.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@state_dir_option
@click.pass_obj
def remove(session: Session, name: str, yes: bool, state_dir: Path) -> None:
    """Forget a source: whom it trusts, and what was seen there last. What came from it stays."""
    from gpuaas.runtimes.index import sources

    found = sources.find(_shelf(state_dir), name)
    confirm(session, found.name, ["Whoever pins it again would not notice an index older than the last one."], yes=yes)
    sources.remove(_shelf(state_dir), found.name)
    return output.json(found) if session.json else output.echo(output.safe(f"{found.name} is forgotten."))


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--from", "said", metavar="SOURCE", required=True, help="A pinned source; see `gpuaas runtime source`.")
@state_dir_option
@click.pass_obj
def pull(session: Session, names: tuple[str, ...], said: str, state_dir: Path) -> None:
    """Fetch runtimes that another site publishes: only what its signed index names, byte for byte."""
    shelf = _shelf(state_dir)
    taken = [
        {"runtime": manifest.id, "sha256": manifest.layers[0].sha256}
        for manifest in pulled(session, names, said, shelf)
    ]
    if session.json:
        output.json_page(taken)


def pulled(session: Session, names: Iterable[str], said: str, shelf: "Shelf") -> "list[Manifest]":
    """All names are looked up before the first is fetched."""
    from gpuaas.cli.runtime_progress import sending
    from gpuaas.runtimes import tools
    from gpuaas.runtimes.index import sources

    found = sources.find(shelf, said)
    index = sources.look(shelf, found)
    wanted = {entry.path: entry for entry in (sources.chosen(index, name, tools.architecture()) for name in names)}
    taken = []
    for entry in wanted.values():
        with sending(f"fetch {entry.id}", entry.length, json=session.json) as shown:
            taken.append(sources.pull(shelf, found, entry, lambda here, most: shown(here)))
        if not session.json:
            output.echo(output.safe(f"{entry.id} is here: {entry.image}"))
    return taken


def list_of(session: Session, said: str, state_dir: Path) -> None:
    """What a source offers."""
    from gpuaas.runtimes.index import sources

    shelf = _shelf(state_dir)
    found = sources.look(shelf, sources.find(shelf, said))
    if session.json:
        return output.json_page(found.entries)
    here = {each.sha256 for each in shelf.all_built()}
    rows = [(f"{each.id}{' (default)' if each.default else ''}", each.architecture, output.size(each.length),
             "here" if each.image in here else "", each.image[:12]) for each in found.entries]  # fmt: skip
    columns = ("RUNTIME", "ARCHITECTURE", "SIZE", "STATE", "IMAGE")
    return output.table(columns, rows, empty="It lists no runtime.")


def _shelf(state_dir: Path) -> "Shelf":
    from gpuaas.runtimes.shelf import Shelf

    return Shelf(state_dir / "runtimes")
