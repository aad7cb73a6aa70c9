"""`gpuaas invitation`: asking people in, and accepting."""

import sys
from urllib.parse import parse_qs, urlsplit

import click

from gpuaas.cli import output
from gpuaas.cli.account import signed_in
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration

_org = click.option("--org", metavar="ORG", help="Into an organisation instead of a project.")
_roles = click.Choice(["viewer", "editor", "admin", "tenant_member", "tenant_admin"])


@click.group(cls=Group)
def invitation() -> None:
    """Ask people into a project or an organisation. No mail is sent: you hand the link on."""


@invitation.command()
@click.argument("email")
@click.option("--role", type=_roles, help="Default: editor of the project, or tenant_member of the organisation.")
@click.option("--expires", type=duration, default="7d", show_default=True, help="Lifetime, at most 30d.")
@project_option
@_org
@click.pass_obj
def create(session: Session, email: str, role: str | None, expires: int, project: str | None, org: str | None) -> None:
    """Invite an address. Only the link goes to stdout, and it is shown this once."""
    chosen = role or ("tenant_member" if org else "editor")
    issued = session.client().invitations.create(
        email, chosen, **_place(session, project, org), lifetime_seconds=expires
    )
    if session.json:
        return output.json(issued)
    made = issued.invitation
    where = f"{made.org}/{made.project}" if made.project else made.org
    output.note(
        f"Hand this link to {made.email}: {made.role} of {where}, until {output.moment(made.expires_at)}, once."
    )
    output.echo(output.safe(f"{session.server}/#invitation={issued.secret}"))
    return output.note("They run: gpuaas invitation accept LINK")


@invitation.command()
@project_option
@_org
@click.pass_obj
def ls(session: Session, project: str | None, org: str | None) -> None:
    """List the invitations that are open."""
    found = list(session.client().invitations.list(**_place(session, project, org)))
    if session.json:
        return output.json_page(found)
    rows = [(item.id, item.email, item.role, item.project, item.org, output.moment(item.expires_at)) for item in found]
    return output.table(("ID", "EMAIL", "ROLE", "PROJECT", "ORGANISATION", "UNTIL"), rows, empty="No invitations.")


@invitation.command()
@click.argument("id", metavar="ID")
@project_option
@_org
@click.pass_obj
def revoke(session: Session, id: str, project: str | None, org: str | None) -> None:
    """End an invitation before it is used."""
    session.client().invitations.revoke(id, **_place(session, project, org))
    if session.json:
        output.json({"revoked": id})
    else:
        output.echo(output.safe(f"Revoked {id}."))


@invitation.command()
@click.argument("link", metavar="LINK")
@click.option("--new", is_flag=True, help="Make an account with the invited address, also if you are signed in here.")
@click.option("--name", metavar="TEXT", help="For a new account; asked for when left out.")
@click.option("--password-stdin", is_flag=True, help="Read the new account's password from stdin instead of asking.")
@click.pass_obj
def accept(session: Session, link: str, new: bool, name: str | None, password_stdin: bool) -> None:
    """Accept an invitation: as whom you are signed in to that server, or with a new account."""
    server, secret = _parsed(session, link)
    token = session.config.account(server).token
    if token and not new and not name and not password_stdin:
        joined = session.connect(server, token).invitations.accept(secret)
        if session.json:
            return output.json(joined)
        where = f"{joined.org}/{joined.project}" if joined.project else joined.org
        return output.echo(output.safe(f"You are {joined.role} of {where} now."))
    name = name or click.prompt("Your name", err=True)
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else click.prompt(
        "A password, of 12 characters at least", hide_input=True, confirmation_prompt=True, err=True
    )  # fmt: skip
    issued = session.connect(server, None).invitations.sign_up(secret, name, password)
    return signed_in(session, server, issued.secret)


def _place(session: Session, project: str | None, org: str | None) -> dict[str, str | None]:
    if project and org:
        raise Invalid("Either --project or --org, not both.")
    return {"org": org} if org else {"project": session.named_project(project)}


def _parsed(session: Session, link: str) -> tuple[str, str]:
    """The server and the secret. The secret is behind a #, which no browser and no proxy sends to anybody."""
    parts = urlsplit(link.strip())
    if not parts.scheme:
        return session.server, link.strip()
    secret = parse_qs(parts.fragment).get("invitation", [""])[0]
    if parts.scheme not in ("http", "https") or not parts.netloc or not secret:
        raise Invalid("This is not an invitation's link.", "It looks like https://gpu.example.org/#invitation=gpi_...")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"), secret
