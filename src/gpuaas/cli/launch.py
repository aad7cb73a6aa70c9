"""`gpuaas launch`, `gpuaas plan`."""

import sys
from typing import TYPE_CHECKING

import click

from gpuaas.cli import exits, output, progress, units
from gpuaas.cli.allocations import ssh
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import Launched, ReasonView, SeatView

_count = click.option("--count", "-n", type=click.IntRange(1, 64), default=1, help="Several equal ones: all or none.")


@click.command(cls=Command)
@click.argument("name")
@click.option("--offer", "-o", metavar="OFFER", help="What to launch; see `gpuaas offer ls`.")
@_count
@click.option("--wait", "-w", is_flag=True, help="Queue when nothing fits, instead of giving up.")
@click.option("--wait-for", type=units.duration, metavar="TIME", help="Queue, and give up after this time, like 2h.")
@click.option(
    "--priority", type=click.IntRange(0, 9), default=5, help="Among what waits in your project; 9 goes first."
)
@click.option("--key", "-k", "keys", multiple=True, metavar="KEY", help="Only this SSH key of yours; may be repeated.")
@click.option("--for", "length", type=units.duration, metavar="TIME", help="Stop and release it after, like 8h.")
@click.option(
    "--idle", type=units.duration, metavar="TIME", help="Stop and release it when it did nothing for, like 2h."
)
@click.option("--preemptible", is_flag=True, help="Give way to others when they do not fit, after a warning.")
@click.option("--reservation", metavar="NAME", help="Use what was booked; instead of --offer and --count.")
@click.option("--runtime", metavar="RUNTIME", help="Apply this managed runtime too; the machine does not wait for it.")
@click.option("--detach", "-d", is_flag=True, help="Return as soon as the launch is accepted.")
@project_option
@click.pass_obj
def launch(
    session: Session,
    name: str,
    offer: str | None,
    count: int,
    wait: bool,
    wait_for: int | None,
    priority: int,
    keys: tuple[str, ...],
    length: int | None,
    idle: int | None,
    preemptible: bool,
    reservation: str | None,
    runtime: str | None,
    detach: bool,
    project: str,
) -> int:
    """Launch a machine and wait until you can ssh into it."""
    if (offer is None) == (reservation is None):
        raise Invalid("Say what: either --offer or --reservation.", "`gpuaas offer ls` lists what can be launched.")
    if reservation is not None:
        booked = session.client().reservations.show(reservation)
        offer, count, reservation = booked.offer, booked.count, booked.id
        project = project or booked.project_id
    assert offer is not None
    launched = session.client().allocations.launch(
        name,
        offer=offer,
        project=session.project(project),
        count=count,
        wait=wait or wait_for is not None,
        wait_seconds=wait_for,
        priority=priority,
        keys=keys or None,
        max_duration_seconds=length,
        idle_seconds=idle,
        preemptible=preemptible,
        reservation=reservation,
        runtime=runtime,
    )
    if launched.queued and not session.json:
        output.note(f"Queued: {_why(launched.reasons)}. `gpuaas queue` shows its place in the line.")
    if detach:
        return _accepted(session, launched)
    return _finished(session, _followed(session, launched))


def start(session: Session, name: str, offer: str) -> int:
    """One machine in the project at hand, as `gpuaas launch` would."""
    launched = session.client().allocations.launch(name, offer=offer, project=session.project(None))
    return _finished(session, _followed(session, launched))


def _followed(session: Session, launched: "Launched") -> "Launched":
    """The same, as everything was in the end."""
    from gpuaas.sdk.types import Launched

    operations = [
        progress.watch(session, operation, f"launch {allocation.name}", sys.stderr)
        for allocation, operation in zip(launched.allocations, launched.operations, strict=True)
    ]
    allocations = [session.client().allocations.show(allocation.id) for allocation in launched.allocations]
    return Launched(allocations, operations, launched.queued, launched.reasons, launched.runtime_operations)


def _accepted(session: Session, launched: "Launched") -> int:
    if session.json:
        output.json(launched)
    else:
        for allocation, operation in zip(launched.allocations, launched.operations, strict=True):
            output.echo(output.safe(f"{allocation.name} is {allocation.state}: gpuaas op follow {operation.id}"))
    return exits.OK


def _finished(session: Session, launched: "Launched") -> int:
    from gpuaas.sdk import OperationFailed

    if session.json:
        output.json(launched)
    code = exits.OK
    for allocation, operation in zip(launched.allocations, launched.operations, strict=True):
        if operation.state != "succeeded":
            code = exits.report(OperationFailed(operation), json=session.json)
        elif not session.json:
            output.echo(output.safe(ssh(allocation) or f"{allocation.name} is {allocation.state}"))
    if launched.runtime_operations and not session.json:
        listed = ", ".join(operation.id for operation in launched.runtime_operations)
        output.note(f"The runtime comes beside it: gpuaas op follow {listed}")
    return code


@click.command(cls=Command)
@click.option("--offer", "-o", required=True, metavar="OFFER", help="What would be launched.")
@_count
@click.option("--runtime", metavar="RUNTIME", help="And whether such a machine could use this runtime.")
@click.option("--for", "length", type=units.duration, metavar="TIME", help="As it would be launched, like 8h.")
@click.option("--preemptible", is_flag=True, help="As it would be launched.")
@project_option
@click.pass_obj
def plan(
    session: Session,
    offer: str,
    count: int,
    runtime: str | None,
    length: int | None,
    preemptible: bool,
    project: str | None,
) -> int:
    """Say whether a launch would fit right now, and why not. Exit code 5: it would not."""
    asked = session.client().allocations
    found = asked.plan(
        offer,
        project=session.project(project),
        count=count,
        runtime=runtime,
        max_duration_seconds=length,
        preemptible=preemptible,
    )
    if session.json:
        output.json(found)
    elif found.fits:
        with_it = f", with {found.runtime}" if found.runtime else ""
        output.echo(output.safe(f"Fits, as {', '.join(found.realisations)}{with_it}."))
        for seat in found.seats:
            output.echo(output.safe(_where(seat)))
    else:
        output.echo(output.safe(f"Does not fit: {_why(found.reasons)}."))
        if found.earliest:
            output.echo(f"It would fit at {output.moment(found.earliest)}, when others have to be gone.")
    return exits.OK if found.fits else exits.CONFLICT


def _where(seat: "SeatView") -> str:
    """For operators."""
    gpus = f"{seat.gpus} GPU{'s' if seat.gpus != 1 else ''}"
    if seat.link_groups <= 1:
        return f"  on {seat.node}: {gpus}{' of one link group' if seat.gpus > 1 else ''}"
    domains = "one NUMA domain" if seat.numa_domains == 1 else f"{seat.numa_domains} NUMA domains"
    return f"  on {seat.node}: {gpus} that are not all linked directly: of {seat.link_groups} groups, in {domains}"


def _why(reasons: "list[ReasonView]") -> str:
    return "; ".join(
        f"{reason.message} ({reason.count}{': ' if reason.nodes else ''}{', '.join(reason.nodes)})"
        for reason in reasons
    )
