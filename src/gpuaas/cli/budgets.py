"""`gpuaas budget`: what a month may cost."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import money, output
from gpuaas.cli.command import Group, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import BudgetView

_org = click.option("--org", metavar="ORG", help="Of an organisation with all its projects.")


@click.group(cls=Group)
def budget() -> None:
    """What a calendar month (UTC) may cost. Events tell when 50, 80 and 100 % are reached; nothing is stopped."""


@budget.command()
@_org
@project_option
@click.pass_obj
def show(session: Session, org: str | None, project: str | None) -> None:
    """What was spent this month, of which budget."""
    _show(session, session.client().budgets.show(None if org else session.named_project(project), org=org))


@budget.command("set")
@click.argument("amount", type=money.micros)
@_org
@project_option
@click.pass_obj
def set_(session: Session, amount: int, org: str | None, project: str | None) -> None:
    """Set the budget of a month, like 500 or 129.90."""
    place = None if org else session.named_project(project)
    _show(session, session.client().budgets.set(amount, place, org=org))


@budget.command()
@_org
@project_option
@click.pass_obj
def rm(session: Session, org: str | None, project: str | None) -> None:
    """Have no budget any more."""
    session.client().budgets.remove(None if org else session.named_project(project), org=org)
    if session.json:
        output.json({})
    else:
        output.echo("No budget any more.")


def _show(session: Session, found: "BudgetView") -> None:
    if session.json:
        return output.json(found)
    budget, percent = "none", ""
    if found.amount_micros is not None:
        budget, percent = money.amount(found.amount_micros), f"{found.spent_micros * 100 // found.amount_micros} %"
    return output.fields(
        [
            ("month", found.month),
            ("budget", budget),
            ("spent", money.amount(found.spent_micros)),
            ("used", percent),
            ("told at", ", ".join(f"{alert} %" for alert in found.alerts)),
        ]
    )
