"""`gpuaas token`: API tokens for scripts."""

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration


@click.group(cls=Group)
def token() -> None:
    """Your API tokens, for scripts: `GPUAAS_TOKEN=... gpuaas ls`."""


@token.command()
@click.pass_obj
def ls(session: Session) -> None:
    """List your valid tokens. Their secrets are kept nowhere."""
    found = list(session.client().tokens.list())
    if session.json:
        return output.json_page(found)
    rows = [
        (t.id, t.name, ",".join(t.scopes), output.moment(t.expires_at), output.moment(t.last_used_at)) for t in found
    ]
    return output.table(("ID", "NAME", "SCOPES", "EXPIRES", "LAST USED"), rows, empty="No tokens.")


@token.command()
@click.argument("name")
@click.option("--scope", "-s", "scopes", multiple=True, metavar="SCOPE",
              help="'*', 'read', 'allocation.*' or an action; may be repeated. Default: all that you may.")  # fmt: skip
@click.option("--expires", type=duration, default="90d", show_default=True, help="Lifetime, like 90d or 12h.")
@click.pass_obj
def create(session: Session, name: str, scopes: tuple[str, ...], expires: int) -> None:
    """Make a token. Only its secret goes to stdout, and it is shown this once."""
    issued = session.client().tokens.create(name, scopes=scopes or ("*",), lifetime_seconds=expires)
    if session.json:
        return output.json(issued)
    output.note(f"{issued.token.name} ({issued.token.id}), valid until {output.moment(issued.token.expires_at)}:")
    return output.echo(output.safe(issued.secret))


@token.command()
@click.argument("token_id", metavar="ID")
@click.pass_obj
def revoke(session: Session, token_id: str) -> None:
    """End a token at once."""
    session.client().tokens.revoke(token_id)
    if session.json:
        output.json({"revoked": token_id})
    else:
        output.echo(output.safe(f"Revoked {token_id}."))
