"""`gpuaas access`: who gets into a machine, and who was there."""

from itertools import islice
from typing import TYPE_CHECKING

import click

from gpuaas.cli import exits, output
from gpuaas.cli.change import detach_option, finish
from gpuaas.cli.command import Group
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import MachineKeyView, SessionView


@click.group(cls=Group)
def access() -> None:
    """Who gets into a machine, and who was there."""


@access.command()
@click.argument("name")
@click.option("--set", "exactly", multiple=True, metavar="KEY", help="Exactly this key of the owner; may be repeated.")
@click.option("--add", "added", multiple=True, metavar="KEY", help="This key of the owner too; may be repeated.")
@click.option("--remove", "removed", multiple=True, metavar="KEY", help="No longer this one; may be repeated.")
@detach_option
@click.pass_obj
def keys(
    session: Session,
    name: str,
    exactly: tuple[str, ...],
    added: tuple[str, ...],
    removed: tuple[str, ...],
    detach: bool,
) -> int:
    """The keys that get into a machine; with an option, change them, live. Sessions of keys that are not left end."""
    if exactly and (added or removed):
        raise Invalid("--set says all that there is to say.", "Use --add and --remove without it.")
    client = session.client()
    if not (exactly or added or removed):
        return _list(session, list(client.access.keys(name)))
    found = client.allocations.show(name)
    wanted = list(exactly) or _edited(list(client.access.keys(found.id)), added, removed)
    if not wanted and not session.json:
        output.note(f"Nobody gets into {found.name} from now on.")
    # By id from here on: another project may have a machine of that name by now.
    return finish(session, client.access.set_keys(found.id, wanted), detach, "has other keys")


def _edited(there: "list[MachineKeyView]", added: tuple[str, ...], removed: tuple[str, ...]) -> list[str]:
    for gone in removed:
        if not any(_is(key, gone) for key in there):
            raise Invalid(f"{gone!r} does not get in as it is.", "`gpuaas access keys NAME` lists the keys that do.")
    kept = [key.id for key in there if not any(_is(key, gone) for gone in removed)]
    return [*kept, *(name for name in added if not any(_is(key, name) and key.id in kept for key in there))]


def _is(key: "MachineKeyView", name: str) -> bool:
    return name in (key.id, key.name, key.fingerprint)


def _list(session: Session, found: "list[MachineKeyView]") -> int:
    if session.json:
        output.json_page(found)
    else:
        rows = [(key.name, key.user, key.type, key.fingerprint) for key in found]
        output.table(("KEY", "USER", "TYPE", "FINGERPRINT"), rows, empty="Nobody gets in.")
    return exits.OK


@access.command()
@click.argument("name")
@click.option("--open", "only_open", is_flag=True, help="Only who is there now.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many, newest first.")
@click.pass_obj
def sessions(session: Session, name: str, only_open: bool, limit: int) -> None:
    """Who is and was logged in on a machine, newest first: since when, from where, and how it ended."""
    listed = session.client().access.sessions(name)
    found = list(islice((item for item in listed if not (only_open and item.closed_at)), limit))
    if session.json:
        return output.json_page(found)
    columns = ("USER", "FROM", "SINCE", "UNTIL", "KEY", "END")
    return output.table(columns, [_row(item) for item in found], empty="Nobody was there.")


def _row(item: "SessionView") -> tuple[str, ...]:
    who = item.user or "somebody unknown"
    until = output.moment(item.closed_at) if item.closed_at else "now"
    return who, item.source, output.moment(item.opened_at), until, item.fingerprint, item.close_reason or ""
