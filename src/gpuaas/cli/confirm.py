"""Before something is interrupted or lost: say what, and have the name typed."""

import sys

import click

from gpuaas.cli import output
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session


def confirm(session: Session, name: str, consequences: list[str], *, yes: bool) -> None:
    """Returns when confirmed, raises otherwise. Only a person at a terminal is asked."""
    if yes:
        return
    if session.json or not sys.stdin.isatty():
        raise Invalid(
            "This needs a confirmation, and nobody is there to ask.", " ".join([*consequences, "Repeat it with --yes."])
        )
    for line in consequences:
        output.note(line)
    typed = click.prompt(f"Type {output.safe(name)} to go on", default="", show_default=False, err=True)
    if typed.strip() != name:
        raise Invalid("The name does not match; nothing was done.")
