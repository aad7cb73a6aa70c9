"""`gpuaas project`."""

import os
from dataclasses import replace

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session


@click.group(cls=Group)
def project() -> None:
    """Projects: where machines live and people work together."""


@project.command()
@click.pass_obj
def ls(session: Session) -> None:
    """List the projects that you see; `*` marks your default."""
    found = list(session.client().projects.list())
    if session.json:
        return output.json_page(found)
    default = session.project(None)
    rows = [
        ("*" if default in (item.slug, item.id) else " ", item.slug, item.name, item.role, item.id, item.org_id)
        for item in found
    ]
    return output.table((" ", "SLUG", "NAME", "ROLE", "ID", "ORGANISATION"), rows, empty="You are in no project yet.")


@project.command()
@click.argument("slug")
@click.option("--name", metavar="TEXT", help="For people; the slug when left out.")
@click.option("--org", metavar="ORG", help="May be left out by a member of one organisation.")
@click.pass_obj
def create(session: Session, slug: str, name: str | None, org: str | None) -> None:
    """Make a project."""
    made = session.client().projects.create(slug, name, org=org)
    if session.json:
        output.json(made)
    else:
        output.echo(output.safe(f"Made {made.slug} ({made.id}). Work in it: `gpuaas project use {made.slug}`."))


@project.command()
@click.argument("name", metavar="PROJECT")
@click.argument("policy", type=click.Choice(["open", "closed"]))
@click.pass_obj
def network(session: Session, name: str, policy: str) -> None:
    """Let the machines of a project on one node talk to each other (open), or not (closed, as at first)."""
    changed = session.client().projects.set_network(name, open=policy == "open")
    if session.json:
        output.json(changed)
    else:
        output.echo(output.safe(f"{changed.slug} is {policy}. Machines follow when they are launched or restarted."))


@project.command()
@click.argument("name", metavar="PROJECT")
@click.pass_obj
def use(session: Session, name: str) -> None:
    """Make a project your default, by slug or id."""
    from gpuaas.sdk import ApiError

    seen = list(session.client().projects.list())
    fits = [item for item in seen if name in (item.slug, item.id)]
    if not fits:
        known = ", ".join(item.slug for item in seen) or "none"
        raise ApiError("not_found", 404, f"There is no project {name!r} that you can see.", f"You see: {known}.")
    if len(fits) > 1:
        listed = ", ".join(item.id for item in fits)
        raise ApiError("ambiguous", 409, f"Several projects are called {name!r}.", f"Use the id: {listed}.")
    account = replace(session.config.account(session.server), project=name)
    session.save(session.config.with_account(session.server, account, use=False))
    if session.json:
        return output.json(fits[0])
    output.echo(output.safe(f"Your default project is {fits[0].slug}."))
    if os.environ.get("GPUAAS_PROJECT"):
        output.note("GPUAAS_PROJECT is set and wins over it.")
    return None
