"""`gpuaas oidc`: what an organisation lets single sign-on do."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import OidcSettingsView


@click.group(cls=Group)
def oidc() -> None:
    """Single sign-on of an organisation: whose addresses become members, and which groups have which role."""


@oidc.command()
@click.argument("org")
@click.pass_obj
def show(session: Session, org: str) -> None:
    """Show what single sign-on does in an organisation."""
    _shown(session, session.client().oidc.show(org))


@oidc.command()
@click.argument("org")
@click.argument("domains", metavar="[DOMAIN]...", nargs=-1)
@click.pass_obj
def domains(session: Session, org: str, domains: tuple[str, ...]) -> None:
    """Let addresses of exactly these domains become members (platform administrators); none ends it."""
    _shown(session, session.client().oidc.set_domains(org, domains))


@oidc.command()
@click.argument("org")
@click.argument("mapped", metavar="[GROUP=PROJECT:ROLE]...", nargs=-1)
@click.pass_obj
def groups(session: Session, org: str, mapped: tuple[str, ...]) -> None:
    """Give groups of the identity provider roles in projects: exactly these, from everybody's next login on."""
    _shown(session, session.client().oidc.set_groups(org, [_parsed(item) for item in mapped]))


def _parsed(text: str) -> tuple[str, str, str]:
    group, _, rest = text.rpartition("=")
    project, _, role = rest.partition(":")
    if not (group and project and role):
        raise Invalid(f"{text!r} does not say who may do what.", "It looks like ml-engineers=vision:editor.")
    return group, project, role


def _shown(session: Session, found: "OidcSettingsView") -> None:
    if session.json:
        return output.json(found)
    output.fields([("domains", ", ".join(found.domains) or "none")])
    rows = [(item.group, item.project_id, item.role) for item in found.groups]
    return output.table(("GROUP", "PROJECT", "ROLE"), rows)
