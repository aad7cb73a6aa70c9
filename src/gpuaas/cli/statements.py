"""`gpuaas statement`: months that are closed."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import exits, money, output
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import StatementView


@click.group(cls=Group)
def statement() -> None:
    """Months (UTC) of a project: closed when nothing of them can change, and derived again whenever you look."""


@statement.command()
@project_option
@click.pass_obj
def ls(session: Session, project: str | None) -> None:
    """List the closed months of a project."""
    found = list(session.client().statements.list(session.named_project(project)))
    if session.json:
        return output.json_page(found)
    rows = [(item.month, money.amount(item.amount_micros), item.lines, output.moment(item.closed_at)) for item in found]
    return output.table(("MONTH", "COST", "LINES", "CLOSED"), rows, empty="No month is closed yet.")


@statement.command()
@click.argument("month", type=money.month)
@click.option("--org", metavar="ORG", help="Every project of an organisation, for its administrators.")
@project_option
@click.pass_obj
def show(session: Session, month: str, org: str | None, project: str | None) -> int:
    """Derive a month again, and compare it with what was closed. Exit code 1: it is not the same."""
    client = session.client()
    if org:
        of_org = client.statements.org(org, month)
        if session.json:
            output.json(of_org)
        else:
            slugs = {item.id: item.slug for item in client.projects.list()}
            rows = [
                (
                    slugs.get(item.project_id, item.project_id),
                    money.amount(item.amount_micros),
                    item.lines,
                    _state(item),
                )
                for item in of_org.projects
            ]
            output.table(
                ("PROJECT", "COST", "LINES", "STATE"), [*rows, ("total", money.amount(of_org.amount_micros), "", "")]
            )
        return exits.FAILED if any(item.intact is False for item in of_org.projects) else exits.OK
    found = client.statements.show(session.named_project(project), month)
    if session.json:
        output.json(found)
    else:
        output.fields(
            [
                ("month", found.month),
                ("cost", money.amount(found.amount_micros)),
                ("lines", found.lines),
                ("state", _state(found)),
                ("closed", output.moment(found.closed_at) if found.closed_at else ""),
                ("hash", found.hash),
            ]
        )
    return exits.FAILED if found.intact is False else exits.OK


def _state(item: "StatementView") -> str:
    return "open" if item.closed_at is None else "intact" if item.intact else "altered"
