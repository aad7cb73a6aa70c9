"""`gpuaas runtime gc`: room that runtimes take and nobody needs, on the server or on this machine."""

import time
from pathlib import Path

import click

from gpuaas.cli import output, units
from gpuaas.cli.command import Command
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

_LEAST_SECONDS = 3600


@click.command(cls=Command)
@click.option("--older-than", type=units.duration, default="1d", show_default=True, metavar="TIME",
              help="Only what nobody has touched for so long; at least 1h.")  # fmt: skip
@click.option("--local", is_flag=True, help="What builds have left on this machine, instead of the server's images.")
@click.option("--yes", "-y", is_flag=True, help="Remove it; without, it is only listed.")
@state_dir_option
@click.pass_obj
def gc(session: Session, older_than: int, local: bool, yes: bool, state_dir: Path) -> None:
    """List what nobody needs any more, and with --yes remove it.

    On the server (operators): images of versions that are deprecated and on no machine, of drafts and of nothing, and
    uploads that nobody finished. With --local: images of earlier builds, files that no lock names, old logs.
    """
    if older_than < _LEAST_SECONDS:
        raise Invalid("What is younger than an hour may be on its way.", "Use --older-than 1h, or longer.")
    if local:
        return _local(session, older_than, yes, state_dir)
    runtimes = session.client().runtimes
    collect = runtimes.collect_images if yes else runtimes.unused_images
    found = collect(older_than_seconds=older_than)
    if session.json:
        return output.json(found)
    rows = [(each.kind, each.name, output.size(each.size_bytes), each.digest[:12]) for each in found.items]
    output.table(("WHAT", "OF", "SIZE", "IMAGE"), rows)
    return _sum(len(found.items), found.size_bytes, yes)


def _local(session: Session, older_than: int, yes: bool, state_dir: Path) -> None:
    from gpuaas.runtimes import tidy
    from gpuaas.runtimes.shelf import Shelf

    found = (tidy.remove if yes else tidy.unused)(Shelf(state_dir / "runtimes"), time.time() - older_than)
    size = sum(each.size for each in found)
    if session.json:
        return output.json({"items": found, "next_cursor": None, "size_bytes": size})
    output.table(("WHAT", "SIZE", "WHERE"), [(each.kind, output.size(each.size), each.path) for each in found])
    return _sum(len(found), size, yes)


def _sum(count: int, size: int, yes: bool) -> None:
    if not count:
        output.note("Everything that is there is needed, or too young.")
    elif yes:
        output.note(f"Removed: {output.size(size)} are free again.")
    else:
        output.note(f"{output.size(size)} can be freed: repeat it with --yes.")
