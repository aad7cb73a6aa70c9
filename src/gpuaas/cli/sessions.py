"""`gpuaas session`: where you are signed in, and ending it."""

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

_user = click.option("--user", metavar="USER", help="Of somebody else, by address or id; for administrators.")


@click.group(cls=Group)
def session() -> None:
    """Where you are signed in: logins and API tokens. SSH sessions are listed by `gpuaas access sessions`."""


@session.command()
@_user
@click.pass_obj
def ls(session: Session, user: str | None) -> None:
    """List your logins and tokens; `*` marks the one that you use now."""
    client = session.client()
    found = list(client.users.tokens(user) if user else client.tokens.list())
    if session.json:
        return output.json_page(found)
    rows = [
        ("*" if item.current else " ", item.id, item.kind, item.name, item.source, output.age(item.created_at),
         output.moment(item.last_used_at), output.moment(item.expires_at))
        for item in found
    ]  # fmt: skip
    columns = (" ", "ID", "KIND", "NAME", "FROM", "AGE", "LAST USED", "EXPIRES")
    return output.table(columns, rows, empty="No logins and no tokens.")


@session.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--others", is_flag=True, help="All of yours but the one that you use now.")
@_user
@click.pass_obj
def end(session: Session, ids: tuple[str, ...], others: bool, user: str | None) -> None:
    """End logins and tokens at once, with what follows a feed or a machine through them.

    Of somebody else, all of them: they may log in again. `gpuaas user disable` keeps them out.
    """
    if sum((bool(ids), others, bool(user))) != 1:
        raise Invalid("Which ones?", "Give their ids, or --others, or --user for all of somebody else's.")
    client = session.client()
    if user:
        ended = client.users.end_tokens(user)
    elif others:
        ended = client.tokens.revoke_others()
    else:
        for id in ids:
            client.tokens.revoke(id)
        ended = len(ids)
    if session.json:
        output.json({"ended": ended})
    else:
        output.echo(f"Ended {ended}.")
