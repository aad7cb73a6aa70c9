"""`gpuaas project`."""

import os
from dataclasses import replace

import click

from gpuaas.cli import output, units
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
@click.option(
    "--idle", type=units.duration, metavar="TIME", help="Stop machines that did nothing for, from 10m to 23h."
)
@click.option(
    "--gpu",
    "percent",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="A GPU this busy, in percent, is not idle.",
)
@click.option("--max", "length", type=units.duration, metavar="TIME", help="How long a lease may be at a time.")
@click.option("--none", "nothing", is_flag=True, help="Limit nothing any more.")
@click.pass_obj
def lease(session: Session, name: str, idle: int | None, percent: int, length: int | None, nothing: bool) -> None:
    """Show how long machines of a project may stay; with options, decide it (admins of the project)."""
    if nothing and (idle or length):
        raise click.UsageError("Either --none, or limits.")
    projects = session.client().projects
    if idle or length or nothing:
        found = projects.set_lease_policy(
            name, idle_seconds=idle, idle_gpu_percent=percent, max_duration_seconds=length
        )
    else:
        found = projects.lease_policy(name)
    if session.json:
        return output.json(found)
    said = f"no session and GPUs below {found.idle_gpu_percent} % for {output.duration(found.idle_seconds or 0)}"
    most = output.duration(found.max_duration_seconds or 0)
    return output.fields(
        [
            ("stopped when idle", said if found.idle_seconds else "never"),
            ("longest lease", most if found.max_duration_seconds else "not limited"),
        ]
    )


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
