"""`gpuaas service-account`: accounts for programs."""

from pathlib import Path

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.confirm import confirm
from gpuaas.cli.keys import public_line, read_key
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration


@click.group(cls=Group)
def service_account() -> None:
    """Accounts for programs. Each belongs to one project, has a role there and nowhere else, and has no password."""


@service_account.command()
@project_option
@click.pass_obj
def ls(session: Session, project: str | None) -> None:
    """List the service accounts of a project."""
    found = list(session.client().service_accounts.list(session.named_project(project)))
    if session.json:
        return output.json_page(found)
    rows = [
        (item.name, item.role, item.address, "disabled" if item.disabled_at else "enabled", item.id) for item in found
    ]
    return output.table(("NAME", "ROLE", "SHOWN AS", "STATE", "ID"), rows, empty="No service accounts.")


@service_account.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "editor", "admin"]), default="editor", show_default=True)
@project_option
@click.pass_obj
def create(session: Session, name: str, role: str, project: str | None) -> None:
    """Make a service account. It can do nothing before it has a token."""
    made = session.client().service_accounts.create(session.named_project(project), name, role=role)
    if session.json:
        return output.json(made)
    output.echo(output.safe(f"Made {made.name} ({made.id}), {made.role}; it is shown as {made.address}."))
    hint = f"gpuaas service-account token create {made.name} NAME --scope 'allocation.*'"
    return output.note(f"Give it a token: `{hint}`.")


@service_account.command()
@click.argument("name")
@project_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, name: str, project: str | None, yes: bool) -> None:
    """Delete a service account: its tokens, streams and SSH sessions end at once. Its machines run on."""
    chosen = session.named_project(project)
    confirm(session, name, [f"Everything that uses {name} is cut off at once, for good."], yes=yes)
    left = session.client().service_accounts.delete(chosen, name)
    if session.json:
        return output.json({"deleted": name, "machines": list(left)})
    output.echo(output.safe(f"Deleted {name}."))
    if left:
        output.note(f"Its machines run on, and cost: {', '.join(left)}. `gpuaas release NAME` gives one back.")
    return None


@service_account.group()
def token() -> None:
    """Tokens of a service account."""


@token.command("ls")
@click.argument("account")
@project_option
@click.pass_obj
def list_tokens(session: Session, account: str, project: str | None) -> None:
    """List the valid tokens of a service account."""
    found = list(session.client().service_accounts.tokens(session.named_project(project), account))
    if session.json:
        return output.json_page(found)
    rows = [
        (t.id, t.name, ",".join(t.scopes), output.moment(t.expires_at), output.moment(t.last_used_at)) for t in found
    ]
    return output.table(("ID", "NAME", "SCOPES", "EXPIRES", "LAST USED"), rows, empty="No tokens.")


@token.command("create")
@click.argument("account")
@click.argument("name")
@click.option("--scope", "-s", "scopes", multiple=True, required=True, metavar="SCOPE",
              help="'*' (all that its role allows), 'read', 'allocation.*' or an action; may be repeated.")  # fmt: skip
@click.option("--expires", type=duration, default="90d", show_default=True, help="Lifetime, like 90d or 12h.")
@project_option
@click.pass_obj
def create_token(
    session: Session, account: str, name: str, scopes: tuple[str, ...], expires: int, project: str | None
) -> None:
    """Make a token. Only its secret goes to stdout, and it is shown this once."""
    accounts = session.client().service_accounts
    issued = accounts.create_token(
        session.named_project(project), account, name, scopes=scopes, lifetime_seconds=expires
    )
    if session.json:
        return output.json(issued)
    output.note(f"{issued.token.name} ({issued.token.id}), valid until {output.moment(issued.token.expires_at)}:")
    return output.echo(output.safe(issued.secret))


@token.command("revoke")
@click.argument("account")
@click.argument("token_id", metavar="ID")
@project_option
@click.pass_obj
def revoke_token(session: Session, account: str, token_id: str, project: str | None) -> None:
    """End a token at once."""
    session.client().service_accounts.revoke_token(session.named_project(project), account, token_id)
    _done(session, {"revoked": token_id}, f"Revoked {token_id}.")


@service_account.group()
def key() -> None:
    """SSH public keys of a service account: they open the machines that it launches."""


@key.command("ls")
@click.argument("account")
@project_option
@click.pass_obj
def list_keys(session: Session, account: str, project: str | None) -> None:
    """List the keys of a service account."""
    found = list(session.client().service_accounts.keys(session.named_project(project), account))
    if session.json:
        return output.json_page(found)
    rows = [(item.name, item.type, item.fingerprint, output.age(item.created_at)) for item in found]
    return output.table(("NAME", "TYPE", "FINGERPRINT", "AGE"), rows, empty="No keys.")


@key.command("add")
@click.argument("account")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@project_option
@click.pass_obj
def add_key(session: Session, account: str, name: str, path: Path, project: str | None) -> None:
    """Add the public key in the file PATH."""
    line = public_line(read_key(path.expanduser()))
    added = session.client().service_accounts.add_key(session.named_project(project), account, name, line)
    if session.json:
        output.json(added)
    else:
        output.echo(output.safe(f"Added {added.name}: {added.fingerprint}"))


@key.command("remove")
@click.argument("account")
@click.argument("name")
@project_option
@click.pass_obj
def remove_key(session: Session, account: str, name: str, project: str | None) -> None:
    """Remove a key. It leaves every machine that has it; sessions that it opened end."""
    session.client().service_accounts.remove_key(session.named_project(project), account, name)
    _done(session, {"removed": name}, f"Removed {name}.")


def _done(session: Session, answer: dict[str, str], said: str) -> None:
    if session.json:
        output.json(answer)
    else:
        output.echo(output.safe(said))
