"""`gpuaas member`: who works in a project."""

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.session import Session

_org = click.option("--org", metavar="ORG", help="Of this organisation, instead of a project.")
_role = click.Choice(["viewer", "editor", "admin"])


@click.group(cls=Group)
def member() -> None:
    """Who works in a project. Viewers look, editors launch and release, admins decide who is in."""


@member.command()
@project_option
@_org
@click.pass_obj
def ls(session: Session, project: str | None, org: str | None) -> None:
    """List the members of a project, or of an organisation."""
    client = session.client()
    found = list(client.orgs.members(org) if org else client.members.list(session.named_project(project)))
    if session.json:
        return output.json_page(found)
    rows = [(item.email, item.name, item.role, item.kind, item.user_id) for item in found]
    return output.table(("EMAIL", "NAME", "ROLE", "KIND", "ID"), rows, empty="No members.")


@member.command()
@click.argument("user")
@click.option("--role", type=_role, default="editor", show_default=True)
@project_option
@click.pass_obj
def add(session: Session, user: str, role: str, project: str | None) -> None:
    """Add a user, by address or id."""
    _set(session, user, role, project)


@member.command()
@click.argument("user")
@click.argument("role", type=_role)
@project_option
@click.pass_obj
def role(session: Session, user: str, role: str, project: str | None) -> None:
    """Change the role of a member."""
    _set(session, user, role, project)


def _set(session: Session, user: str, role: str, project: str | None) -> None:
    found = session.client().members.set(session.named_project(project), user, role)
    if session.json:
        output.json(found)
    else:
        output.echo(output.safe(f"{found.email} is {found.role}."))


@member.command()
@click.argument("user")
@project_option
@_org
@click.pass_obj
def remove(session: Session, user: str, project: str | None, org: str | None) -> None:
    """Take a member out of a project, or out of an organisation with all its projects.

    What they have open there, SSH sessions included, ends at once. Their machines stay, without their keys.
    """
    if org:
        session.client().orgs.remove_member(org, user)
    else:
        session.client().members.remove(session.named_project(project), user)
    if session.json:
        output.json({"removed": user})
    else:
        output.echo(output.safe(f"Removed {user}."))
