"""`gpuaas events`: what happened in a project."""

from collections import deque
from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import EventView


@click.command(cls=Command)
@project_option
@click.option("--org", metavar="ORG", help="Follow every project of this organisation; with --follow only.")
@click.option("--follow", "-f", is_flag=True, help="Keep showing what happens, until you interrupt it.")
@click.option("--after", type=click.IntRange(0), metavar="NUMBER", help="Only what came after this event.")
@click.option("--object", "object_id", metavar="ID", help="Only about this object.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many, the newest.")
@click.pass_obj
def events(
    session: Session, project: str | None, org: str | None, follow: bool, after: int | None, object_id: str | None,
    limit: int,
) -> None:  # fmt: skip
    """What happened in a project, oldest first. With --json, --follow prints one event per line."""
    if org:
        if project or after is not None or not follow:
            raise click.UsageError("--org goes with --follow, and without --project and --after.")
        for event, _ in session.client().events.follow_org(org):
            if object_id in (None, event.object_id):
                output.json(event) if session.json else output.echo(f"{event.project_id}  {_line(event)}")
        return
    chosen = session.project(project)
    if follow:
        for event in session.client().events.follow(chosen, after=after):
            if object_id in (None, event.object_id):
                output.json(event) if session.json else output.echo(_line(event))
        return
    listed = session.client().events.list(chosen, object_id=object_id)
    found = deque((event for event in listed if event.seq > (after or 0)), maxlen=limit)
    if session.json:
        output.json_page(found)
        return
    for event in found:
        output.echo(_line(event))


def _line(event: "EventView") -> str:
    data = " ".join(f"{name}={value}" for name, value in event.data.items())
    head = click.style(f"{event.seq:>6}  {output.moment(event.at)}", dim=True)
    return (
        f"{head}  {click.style(output.safe(event.type), bold=True)}  {output.safe(f'{event.object_id} {data}').strip()}"
    )
