"""`gpuaas quota`: how much a project or an organisation may have."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import QuotaView

_org = click.option("--org", metavar="ORG", help="Of this organisation, all its projects together.")
_quota = click.argument("quota", type=click.Choice(["gpus", "allocations", "gpu_hours", "volumes"]))


@click.group(cls=Group)
def quota() -> None:
    """How much a project or an organisation may have."""


@quota.command()
@project_option
@_org
@click.pass_obj
def ls(session: Session, project: str | None, org: str | None) -> None:
    """What may be had and what is used, of a project and its organisation."""
    found = list(session.client().quotas.list(None if org else session.named_project(project), org=org))
    if session.json:
        return output.json_page(found)
    return output.table(("QUOTA", "OF THE", "USED", "MOST", "UNIT"), [_row(item) for item in found])


@quota.command("set")
@_quota
@click.argument("most", type=click.IntRange(0, 2**40))
@project_option
@_org
@click.pass_obj
def set_(session: Session, quota: str, most: int, project: str | None, org: str | None) -> None:
    """Limit a project (tenant administrators) or an organisation (operators). What runs is left alone."""
    place = None if org else session.named_project(project)
    found = session.client().quotas.set(quota, most, place, org=org).items
    if session.json:
        return output.json_page(found)
    return output.table(("QUOTA", "OF THE", "USED", "MOST", "UNIT"), [_row(item) for item in found])


@quota.command()
@_quota
@project_option
@_org
@click.pass_obj
def rm(session: Session, quota: str, project: str | None, org: str | None) -> None:
    """Have no such limit any more."""
    session.client().quotas.remove(quota, None if org else session.named_project(project), org=org)
    if not session.json:
        output.echo("No such limit any more.")


def _row(item: "QuotaView") -> tuple[object, ...]:
    scope = "project" if item.scope == "project" else "organisation"
    most = "no limit" if item.most is None else item.most
    return item.quota, scope, f"{item.used:.1f}".removesuffix(".0"), most, item.unit
