"""`gpuaas price`: what an hour costs."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from gpuaas.cli import money, output
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import PriceBookView


@click.group(cls=Group)
def price() -> None:
    """Price books: what an hour costs, and since when. A book never changes; the newest valid one counts."""


@price.command()
@click.pass_obj
def ls(session: Session) -> None:
    """List all price books; `*` marks the one that counts now."""
    found = list(session.client().prices.list())
    if session.json:
        return output.json_page(found)
    rows = [
        ("*" if item.valid else " ", item.version, output.moment(item.valid_from), _prices(item), item.note)
        for item in found
    ]
    empty = "There is no price book: every offer has its own price, see `gpuaas offer ls`."
    return output.table((" ", "VERSION", "VALID FROM", "PRICES/H", "NOTE"), rows, empty=empty)


@price.command()
@click.option(
    "--offer", "offers", type=money.priced, multiple=True, metavar="OFFER=PRICE", help="Per hour; may be repeated."
)
@click.option(
    "--gpu",
    "gpus",
    type=money.priced,
    multiple=True,
    metavar="MODEL=PRICE",
    help="Per GPU and hour, for offers that are not named.",
)
@click.option("--cpu", type=money.micros, default="0", help="Per CPU and hour, besides --gpu.")
@click.option("--memory", type=money.micros, default="0", help="Per GiB and hour, besides --gpu.")
@click.option("--from", "start", type=money.moment, metavar="TIME", help="Now when left out; never in the past.")
@click.option("--note", metavar="TEXT")
@click.pass_obj
def publish(
    session: Session,
    offers: tuple[tuple[str, int], ...],
    gpus: tuple[tuple[str, int], ...],
    cpu: int,
    memory: int,
    start: datetime | None,
    note: str | None,
) -> None:
    """Publish the next price book, whole: what it does not name has the price of its offer."""
    from gpuaas.sdk.types import NewPriceBook

    book = NewPriceBook(dict(offers), dict(gpus), cpu, memory, start.isoformat() if start else None, note)
    made = session.client().prices.publish(book)
    if session.json:
        output.json(made)
    else:
        output.echo(output.safe(f"Published version {made.version}, valid from {output.moment(made.valid_from)}."))


@price.command()
@click.argument("usage_id", metavar="USAGE")
@click.option("--reason", required=True, metavar="TEXT", help="The project reads it.")
@click.option("--from", "start", type=money.moment, metavar="TIME", help="A part only; the whole when left out.")
@click.option("--to", "end", type=money.moment, metavar="TIME")
@click.pass_obj
def correct(session: Session, usage_id: str, reason: str, start: datetime | None, end: datetime | None) -> None:
    """Do not charge for some time after all; USAGE is an id of `gpuaas usage --by line`."""
    made = session.client().usage.correct(usage_id, reason, start=start, end=end)
    if session.json:
        output.json(made)
    else:
        said = f"Not charged: {output.moment(made.started_at)} to {output.moment(made.ended_at)} ({made.id})."
        output.echo(output.safe(said))


def _prices(item: "PriceBookView") -> str:
    parts = [f"{name} {money.amount(micros)}" for name, micros in item.offers.items()]
    parts += [f"{model} {money.amount(micros)}/GPU" for model, micros in item.gpus.items()]
    parts += [f"{money.amount(item.cpu)}/CPU"] if item.cpu else []
    parts += [f"{money.amount(item.memory_gib)}/GiB"] if item.memory_gib else []
    return ", ".join(parts)
