"""`gpuaas ls`, `gpuaas show`: machines."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import AllocationView


@click.command(cls=Command)
@project_option
@click.option("--all", "-a", "released", is_flag=True, help="Also those that were released.")
@click.option("--all-projects", "-A", is_flag=True, help="Of every project that you see.")
@click.pass_obj
def ls(session: Session, project: str | None, released: bool, all_projects: bool) -> None:
    """List machines: of your default project, or of all your projects when there is none."""
    chosen = None if all_projects else session.project(project)
    found = list(session.client().allocations.list(chosen, released=released))
    if session.json:
        return output.json_page(found)
    columns, rows = ["NAME", "STATE", "OFFER", "SSH", "AGE"], [_row(item) for item in found]
    if any(item.preemptible for item in found):
        columns.append("KIND")
        for row, item in zip(rows, found, strict=True):
            row.append("preemptible" if item.preemptible else "")
    if any(item.lease or item.preempted_at or item.drained_at for item in found):
        columns.append("ENDS")
        for row, item in zip(rows, found, strict=True):
            row.append(ends(item))
    if chosen is None and found:
        slugs = {item.id: item.slug for item in session.client().projects.list()}
        columns.insert(1, "PROJECT")
        for row, item in zip(rows, found, strict=True):
            row.insert(1, slugs.get(item.project_id, item.project_id))
    return output.table(columns, rows, empty="No machines. `gpuaas launch NAME --offer OFFER` makes one.")


def _row(item: "AllocationView") -> list[str]:
    return [item.name, item.state, item.offer, ssh(item), output.age(item.created_at)]


def ends(item: "AllocationView") -> str:
    """When somebody else or its lease does something to it, and what."""
    if item.preempted_at is not None:
        return f"preempted {_until(item.preempted_at)}"
    if item.drained_at is not None:
        return f"drained {_until(item.drained_at)}"
    if item.lease is None or item.state in ("releasing", "released"):
        return ""
    if item.lease.released_at is not None:
        return f"released {_until(item.lease.released_at)}"
    if item.lease.ends_at is None:
        return ""
    return f"stopped {_until(item.lease.ends_at)}" + (" if idle" if item.lease.reason == "idle" else "")


def _until(at: datetime) -> str:
    seconds = (at - datetime.now(UTC)).total_seconds()
    return f"in {output.duration(seconds)}" if seconds >= 1 else "now"


def ssh(allocation: "AllocationView") -> str:
    """What to type to get in."""
    endpoint = allocation.endpoint
    return f"ssh -p {endpoint.port} {endpoint.user}@{endpoint.host}" if endpoint else ""


@click.command(cls=Command)
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show one machine, by name or id."""
    found = session.client().allocations.show(name)
    if session.json:
        output.json(found)
    else:
        describe(found)


def _preemptible(item: "AllocationView") -> str:
    if not item.preemptible:
        return ""
    if item.preempted_at is None:
        return "yes: it gives way when others do not fit"
    return f"it gives way: released {_until(item.preempted_at)} ({output.moment(item.preempted_at)})"


def _drained(item: "AllocationView") -> str:
    if item.drained_at is None:
        return ""
    return f"its place is taken out of service: released {_until(item.drained_at)} ({output.moment(item.drained_at)})"


def _lease(item: "AllocationView") -> str:
    if item.preempted_at is not None or item.drained_at is not None:
        return ""
    when = ends(item)
    at = item.lease and (item.lease.released_at or item.lease.ends_at)
    return f"{when} ({output.moment(at)}): `gpuaas extend {item.name} 4h`" if when and at else ""


def describe(item: "AllocationView") -> None:
    failure = f"{item.failure.message} ({item.failure.code})" if item.failure else ""
    output.fields(
        [
            ("name", item.name),
            ("id", item.id),
            ("state", item.state),
            ("failure", failure),
            ("offer", item.offer),
            ("ssh", ssh(item)),
            ("host key", item.host_key),
            ("realisation", item.realisation),
            ("project", item.project_id),
            ("owner", item.owner_id),
            ("created", output.moment(item.created_at)),
            ("active", output.moment(item.active_at) if item.active_at else ""),
            ("released", output.moment(item.released_at) if item.released_at else ""),
            ("lease", _lease(item)),
            ("preemptible", _preemptible(item)),
            ("drained", _drained(item)),
            ("you can", ", ".join(item.allowed_actions) or "only wait"),
        ]
    )
