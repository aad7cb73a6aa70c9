"""`gpuaas runtime apply|use|rollback|repair|remove|history`: runtimes of a machine, changed while it runs."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.change import detach_option, finish
from gpuaas.cli.command import Command
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import AllocationRuntimes, AllocationRuntimeView, Changed


def _without_version(context: click.Context, parameter: click.Parameter, said: str) -> str:
    bundle, separator, version = said.replace("@", ":").partition(":")
    if not separator:
        return said
    hint = f"Say `{bundle}`."
    if any(each.name == "version" for each in context.command.params):
        hint = f"Say `{bundle} --version {version}`."
    raise Invalid(f"{said!r} is a version, and a bundle is meant here.", hint)


_machine = click.argument("machine")
_bundle = click.argument("bundle", callback=_without_version)
_version = click.option("--version", metavar="VERSION", help="Exactly this one.")


@click.command(cls=Command)
@_machine
@click.argument("name")
@_version
@click.option("--replace", metavar="BUNDLE", help="A runtime that goes when this one is there.")
@detach_option
@click.pass_obj
def apply(session: Session, machine: str, name: str, version: str | None, replace: str | None, detach: bool) -> int:
    """Apply a runtime to a MACHINE, or switch it to another version. Nothing restarts.

    NAME is like pytorch, python:3.11+ml or python@3.11.x; see `gpuaas runtime list --catalog`.
    """
    changed = session.client().runtimes.apply(machine, name, version=version, replace=replace)
    return finish(session, changed, detach, lambda: f"has {_came(session, changed, name)}")


@click.command(cls=Command)
@_machine
@click.argument("name")
@_version
@detach_option
@click.pass_obj
def use(session: Session, machine: str, name: str, version: str | None, detach: bool) -> int:
    """Make a version of a runtime the current one on a MACHINE: the same as `apply`."""
    changed = session.client().runtimes.apply(machine, name, version=version)
    return finish(session, changed, detach, lambda: f"uses {_came(session, changed, name)}")


@click.command(cls=Command)
@_machine
@_bundle
@click.option("--version", metavar="VERSION", help="To this one, which lies on the machine still.")
@detach_option
@click.pass_obj
def rollback(session: Session, machine: str, bundle: str, version: str | None, detach: bool) -> int:
    """Go back to the version of a BUNDLE that a MACHINE had before."""
    changed = session.client().runtimes.rollback(machine, bundle, version=version)
    other = f"the other version of {bundle}"
    return finish(session, changed, detach, lambda: f"is back at {_came(session, changed, other)}")


@click.command(cls=Command)
@_machine
@_bundle
@detach_option
@click.pass_obj
def repair(session: Session, machine: str, bundle: str, detach: bool) -> int:
    """Have the image of a BUNDLE on a MACHINE checked, and fetched again if it is damaged."""
    changed = session.client().runtimes.repair(machine, bundle)
    return finish(session, changed, detach, f"has {bundle} as it should be")


@click.command(cls=Command)
@_machine
@_bundle
@detach_option
@click.pass_obj
def remove(session: Session, machine: str, bundle: str, detach: bool) -> int:
    """Take a BUNDLE off a MACHINE, with all its versions.

    One that processes have open goes soon after the last of them has ended, and can be used until then.
    """
    changed = session.client().runtimes.remove(machine, bundle)
    return finish(session, changed, detach, f"is without {bundle}")


@click.command(cls=Command)
@_machine
@click.pass_obj
def history(session: Session, machine: str) -> None:
    """What was applied to a MACHINE, by whom and when, the newest first."""
    found = list(session.client().runtimes.history(machine))
    if session.json:
        return output.json_page(found)
    columns = ("WHEN", "WHAT", "RUNTIME", "BEFORE", "STATE", "BY", "MESSAGE")
    rows = [
        (output.moment(each.asked_at), each.action, f"{each.slug}:{each.version}", each.previous_version or "",
         each.state, each.asked_by_email or each.asked_by, each.message)
        for each in found
    ]  # fmt: skip
    return output.table(columns, rows, empty="Nothing was applied to it.")


def show_on(session: Session, machine: str) -> None:
    """What a machine has, and who owns what."""
    found = session.client().runtimes.on(machine)
    if session.json:
        return output.json(found)
    columns = ("RUNTIME", "VERSION", "BESIDE", "SUPPORT", "STATE", "APPLIED", "BY", "ACTIVATE")
    output.table(columns, [_row(each) for each in found.items], empty="It has no managed runtime.")
    return _owned(found)


def _came(session: Session, changed: "Changed", asked: str) -> str:
    """The version that was meant, with its revision; `asked`, where one may not look, or it was changed again."""
    from gpuaas.sdk import ApiError

    try:
        found = session.client().runtimes.on(changed.allocation.id).items
    except ApiError:
        return asked
    for item in found:
        for each in item.versions:
            if each.current and each.operation_id == changed.operation.id:
                return f"{item.slug}:{each.version}"
    return asked


def _row(item: "AllocationRuntimeView") -> tuple[str, ...]:
    on_its_way = item.desired_version != item.current_version
    version = f"{item.current_version or 'none'} -> {item.desired_version}" if on_its_way else item.desired_version
    current = {item.desired_version, item.current_version}
    beside = sorted({each.version for each in item.versions} - current)
    newest = next(each for each in item.versions if each.version == item.desired_version)
    percent = "" if newest.percent is None else f" {newest.percent} %"
    state = f"{newest.observed or item.state}{percent}{': ' if newest.message else ''}{newest.message}"
    there = next((each for each in item.versions if each.current), None)
    when = (output.moment(there.applied_at), there.applied_by_email or there.applied_by) if there else ("-", "-")
    return (item.slug, version, ", ".join(beside), item.support, state, *when, item.activate)


def _owned(found: "AllocationRuntimes") -> None:
    output.note(found.ownership.statement)
