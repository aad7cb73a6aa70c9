"""`gpuaas health`: how one machine is, and why."""

import click

from gpuaas.cli import exits, output
from gpuaas.cli.command import Command
from gpuaas.cli.session import Session


@click.command(cls=Command)
@click.argument("name")
@click.pass_obj
def health(session: Session, name: str) -> int:
    """Say how a machine is, and why. Exits 1 when it is unhealthy."""
    found = session.client().allocations.health(name)
    if session.json:
        output.json(found)
    else:
        output.fields([("name", found.name), ("state", found.state), ("health", found.status)])
        rows = [(finding.code, finding.level, finding.message) for finding in found.findings]
        if rows:
            output.echo()
        output.table(("FINDING", "LEVEL", "WHAT"), rows)
    return exits.FAILED if found.status == "unhealthy" else exits.OK
