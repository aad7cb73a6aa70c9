"""`gpuaas break-glass`: operators at tenants' objects."""

from itertools import islice

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration

_org = click.option("--org", metavar="ORG", help="Into your organisation, as one of its members.")


@click.group(cls=Group)
def break_glass() -> None:
    """Operators have no right on tenants' objects unless a break-glass is open. Its tenant sees it, and may end it."""


@break_glass.command("open")
@click.argument("org")
@click.option("--reason", required=True, metavar="TEXT", help="The tenant sees it; at least ten characters.")
@click.option("--for", "lasting", type=duration, default="1h", show_default=True, help="At most 8h.")
@click.pass_obj
def open_(session: Session, org: str, reason: str, lasting: int) -> None:
    """Act on the objects of an organisation for a while (operators)."""
    made = session.client().break_glass.open(org, reason, duration_seconds=lasting)
    if session.json:
        return output.json(made)
    output.echo(output.safe(f"Open until {output.moment(made.expires_at)}: {made.id}. {made.org} was told."))
    return output.note(f"`gpuaas project ls` shows what you reach. End it early: `gpuaas break-glass end {made.id}`.")


@break_glass.command()
@_org
@click.option("--open", "only_open", is_flag=True, help="Only what is open now.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many, newest first.")
@click.pass_obj
def ls(session: Session, org: str | None, only_open: bool, limit: int) -> None:
    """List who broke the glass, when and why."""
    listed = session.client().break_glass.list(org)
    found = list(islice((item for item in listed if item.open or not only_open), limit))
    if session.json:
        return output.json_page(found)
    rows = [
        (item.id, item.org, item.user, output.moment(item.created_at), output.moment(item.ended_at or item.expires_at),
         "open" if item.open else "over", item.reason)
        for item in found
    ]  # fmt: skip
    columns = ("ID", "ORGANISATION", "OPERATOR", "SINCE", "UNTIL", "STATE", "REASON")
    return output.table(columns, rows, empty="Nobody broke the glass.")


@break_glass.command()
@click.argument("id", metavar="ID")
@_org
@click.pass_obj
def end(session: Session, id: str, org: str | None) -> None:
    """End one before its time: as an operator, or with --org as an admin of that organisation."""
    session.client().break_glass.end(id, org=org)
    if session.json:
        output.json({"ended": id})
    else:
        output.echo(output.safe(f"Ended {id}."))
