"""`gpuaas user`: users, for administrators."""

import sys

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.confirm import confirm
from gpuaas.cli.session import Session


@click.group(cls=Group)
def user() -> None:
    """For administrators: who there is, and who no longer gets in."""


@user.command("create")
@click.argument("email")
@click.option("--name", metavar="TEXT", help="For people; the address when left out.")
@click.option("--password-stdin", is_flag=True, help="Read the first password from stdin; otherwise they have none.")
@click.option("--platform-role", type=click.Choice(["platform_admin", "platform_ops", "platform_builder"]),
              help="For operators, and for those who publish runtimes.")  # fmt: skip
@click.pass_obj
def create_user(
    session: Session, email: str, name: str | None, password_stdin: bool, platform_role: str | None
) -> None:
    """Make a user."""
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
    made = session.client().users.create(email, name or email, password=password, platform_role=platform_role)
    if session.json:
        output.json(made)
    else:
        output.echo(output.safe(f"Made {made.email} ({made.id})."))


@user.command("ls")
@click.pass_obj
def list_users(session: Session) -> None:
    """List all users."""
    found = list(session.client().users.list())
    if session.json:
        return output.json_page(found)
    rows = [
        (item.email, item.name, item.kind, item.platform_role, "disabled" if item.disabled_at else "enabled", item.id)
        for item in found
    ]
    return output.table(("EMAIL", "NAME", "KIND", "PLATFORM ROLE", "STATE", "ID"), rows)


@user.command()
@click.argument("email")
@click.option("--reason", metavar="TEXT", default="not said", help="For the audit log.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def disable(session: Session, email: str, reason: str, yes: bool) -> None:
    """End all that a user has open, now: logins, tokens, streams, SSH sessions. Machines run on, for the team."""
    confirm(session, email, [f"{email} is signed out everywhere and cannot come back."], yes=yes)
    found = session.client().users.disable(email, confirm=email, reason=reason)
    if session.json:
        output.json(found)
    else:
        output.echo(output.safe(f"Disabled {found.email}. `gpuaas user enable {found.email}` lets them log in again."))


@user.command()
@click.argument("email", metavar="USER")
@click.pass_obj
def enable(session: Session, email: str) -> None:
    """Let a disabled user log in again. Tokens and keys on machines do not come back by themselves."""
    found = session.client().users.enable(email)
    if session.json:
        output.json(found)
    else:
        output.echo(output.safe(f"{found.email} may log in again."))
