"""`gpuaas usage`: what was used and what it comes to."""

import csv
import io
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from gpuaas.cli import money, output
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import UsageLine, UsageTotal

_LINE = (
    *("usage_id", "correction_id", "project_id", "resource_id", "name", "user_id", "component", "offer", "gpu_model"),
    *("gpu_count", "started_at", "ended_at", "seconds", "gpu_seconds", "micros_per_hour", "price_book"),
    *("amount_micros", "amount", "reason", "gpus_held"),
)


@click.command(cls=Command)
@click.option(
    "--by",
    type=click.Choice(["allocation", "user", "offer", "project", "line"]),
    help="Machines at first; with --org projects.",
)
@click.option("--from", "start", type=money.moment, metavar="TIME", help="A day (UTC) or a time with its zone.")
@click.option("--to", "end", type=money.moment, metavar="TIME", help="Not included; now when left out.")
@click.option(
    "--month", type=money.month, metavar="YYYY-MM", help="Instead of --from and --to; the current one at first."
)
@click.option("--org", metavar="ORG", help="All projects of an organisation, for its administrators.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every line as CSV, exactly.")
@project_option
@click.pass_obj
def usage(
    session: Session,
    by: str | None,
    start: datetime | None,
    end: datetime | None,
    month: str | None,
    org: str | None,
    as_csv: bool,
    project: str | None,
) -> None:
    """What was used and what it comes to, in the current month or in any period."""
    if month and (start or end):
        raise click.UsageError("Either --month, or --from and --to.")
    if month:
        start, end = money.bounds(month)
    where = None if org else session.named_project(project)
    client = session.client()
    if as_csv or by == "line":
        return _lines(session, list(client.usage.lines(where, org=org, start=start, end=end)), as_csv)
    if org:
        found = client.usage.org(org, start=start, end=end, by=by or "project")
    else:
        found = client.usage.project(where or "", start=start, end=end, by=by or "allocation")
    if session.json:
        return output.json(found)
    output.note(f"From {output.moment(found.starts_at)} to {output.moment(found.ends_at)}.")
    rows = [_row(item) for item in found.items]
    if len(rows) > 1:
        rows.append(("total", *_row(found.total)[1:]))
    return output.table((found.by.upper(), "HOURS", "GPU HOURS", "COST"), rows, empty="Nothing was used.")


def _row(item: "UsageTotal") -> tuple[str, ...]:
    hours, gpu_hours = item.seconds / 3600, item.gpu_seconds / 3600
    return item.name or item.key, f"{hours:.3f}", f"{gpu_hours:.3f}", money.amount(item.amount_micros)


def _lines(session: Session, lines: "list[UsageLine]", as_csv: bool) -> None:
    if as_csv:
        return _csv(lines)
    if session.json:
        return output.json_page(lines)
    rows = [
        (
            line.name,
            line.offer,
            output.moment(line.started_at),
            output.moment(line.ended_at),
            f"{line.seconds / 3600:.3f}",
            money.amount(line.micros_per_hour),
            f"book {line.price_book}" if line.price_book else "offer",
            money.amount(line.amount_micros),
            line.reason,
            line.usage_id,
        )
        for line in lines
    ]
    columns = ("MACHINE", "OFFER", "FROM", "TO", "HOURS", "PRICE/H", "BY", "COST", "CORRECTED FOR", "ID")
    return output.table(columns, rows, empty="Nothing was used.")


def _csv(lines: "list[UsageLine]") -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_LINE)
    for line in lines:
        cells = {name: getattr(line, name) for name in _LINE if name != "amount"}
        cells["amount"] = Decimal(money.exactly(line.amount_micros))
        writer.writerow([_cell(cells[name]) for name in _LINE])
    for row in text.getvalue().splitlines():
        output.echo(output.safe(row))


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    # A text that begins like a formula is none: spreadsheets are told so.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
