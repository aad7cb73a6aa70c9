"""`gpuaas reservation`: machines for a time that is to come."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpuaas.cli import money, output, units
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.confirm import confirm
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import ReservationView


@click.group(cls=Group)
def reservation() -> None:
    """Machines for a time that is to come."""


@reservation.command()
@click.argument("name")
@click.option("--offer", "-o", required=True, metavar="OFFER", help="What is booked; see `gpuaas offer ls`.")
@click.option("--count", "-n", type=click.IntRange(1, 64), default=1, help="Several equal ones: all or none.")
@click.option("--from", "start", type=money.moment, required=True, metavar="TIME", help="Like 2030-01-31T12:00Z.")
@click.option("--until", "end", type=money.moment, metavar="TIME", help="When its machines are stopped.")
@click.option("--for", "length", type=units.duration, metavar="TIME", help="The same as a duration, like 6h.")
@click.option("--launch", metavar="NAME", help="Launch machines of this name when it begins.")
@click.option("--key", "-k", "keys", multiple=True, metavar="KEY", help="With --launch: only this SSH key of yours.")
@project_option
@click.pass_obj
def book(
    session: Session, name: str, offer: str, count: int, start: datetime, end: datetime | None, length: int | None,
    launch: str | None, keys: tuple[str, ...], project: str | None,
) -> None:  # fmt: skip
    """Book machines. Without --launch, launch with `--reservation NAME` within 15 minutes after it has begun."""
    if (end is None) == (length is None):
        raise Invalid("Say how long: either --until or --for.")
    ends_at = end or start + timedelta(seconds=length or 0)
    found = session.client().reservations.book(
        name, offer=offer, starts_at=start, ends_at=ends_at, project=session.project(project), count=count,
        launch=launch, keys=keys or None,
    )  # fmt: skip
    _say(session, found)


@reservation.command()
@project_option
@click.option("--all", "-a", "ended", is_flag=True, help="Also those that are over.")
@click.pass_obj
def ls(session: Session, project: str | None, ended: bool) -> None:
    """What is booked, the next one first."""
    found = list(session.client().reservations.list(session.project(project), ended=ended))
    if session.json:
        return output.json_page(found)
    columns = ("NAME", "STATE", "OFFER", "COUNT", "FROM", "UNTIL", "LAUNCHES", "TROUBLE")
    return output.table(columns, [_row(item) for item in found], empty="Nothing is booked.")


@reservation.command()
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """One reservation, by name or id."""
    _say(session, session.client().reservations.show(name))


@reservation.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def cancel(session: Session, name: str, yes: bool) -> None:
    """Give it back: others can have its place."""
    found = session.client().reservations.show(name)
    confirm(session, found.name, [f"Cancelling {found.name} gives its place to others."], yes=yes)
    _say(session, session.client().reservations.cancel(found.id, confirm=found.name))


def _row(item: "ReservationView") -> tuple[object, ...]:
    window = output.moment(item.starts_at), output.moment(item.ends_at)
    return item.name, _state(item), item.offer, item.count, *window, item.launch or "", item.trouble or ""


def _state(item: "ReservationView") -> str:
    return "ready" if item.state == "booked" and item.ready_at else item.state


def _say(session: Session, item: "ReservationView") -> None:
    if session.json:
        return output.json(item)
    return output.fields(
        [
            ("name", item.name),
            ("id", item.id),
            ("state", _state(item)),
            ("trouble", item.trouble or ""),
            ("offer", item.offer),
            ("count", str(item.count)),
            ("from", output.moment(item.starts_at)),
            ("until", output.moment(item.ends_at)),
            ("launches", item.launch or ""),
            ("machines", ", ".join(item.allocation_ids)),
            ("project", item.project_id),
            ("owner", item.owner_id),
        ]
    )
