"""`gpuaas down`: stops what `gpuaas up` started, and only that."""

import shutil
import subprocess
import sys
from pathlib import Path

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command
from gpuaas.cli.confirm import confirm
from gpuaas.cli.installation import Installation, state_dir_option
from gpuaas.cli.session import Session
from gpuaas.kit.errors import Problem

_GRACE_SECONDS = 10.0


@click.command(cls=Command)
@state_dir_option
@click.option("--purge", is_flag=True, help="Also delete all data: machines, users, history.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --purge.")
@click.pass_obj
def down(session: Session, state_dir: Path, purge: bool, yes: bool) -> None:
    """Stop everything that `gpuaas up` started, machines too. Data is kept, unless --purge is given."""
    place = Installation(state_dir)
    if not place.exists:
        if session.json:
            return output.json({"stopped": [], "purged": False})
        return output.echo(f"There is nothing of `gpuaas up` in {place.directory}.")
    if purge:
        warning = f"This deletes {place.directory} with every machine, user and record in it, for good."
        confirm(session, place.directory.name, [warning], yes=yes)
    with place.locked():
        stopped = [daemon.name for daemon in (place.agent, place.server) if daemon.stop(_GRACE_SECONDS)]
        if not place.settings().modelled:
            _clear_node(place, purge=purge)
        if _stop_postgres(place):
            stopped.append("postgres")
        if purge:
            _forget(session, place)
    if session.json:
        return output.json({"stopped": stopped, "purged": purge})
    return output.echo(f"Stopped: {', '.join(stopped) or 'nothing was running'}." + (" Deleted." if purge else ""))


def _clear_node(place: Installation, *, purge: bool) -> None:
    """Ends the machines and takes mounts, networks and cgroups away; the next `up` brings the machines back."""
    command = [sys.executable, "-P", "-m", "gpuaas.cli.main", "agent", "clear", *place.node_options(place.settings())]
    command += ["--purge"] if purge else []
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem("not_cleared", 500, "The machines on this node could not be stopped.",
                      "Run `gpuaas down` again.", detail=done.stderr.strip()[-2000:])  # fmt: skip


def _stop_postgres(place: Installation) -> bool:
    if not (place.postgres / "data" / "postmaster.pid").exists():
        return False
    from gpuaas.control.store.embedded import Embedded

    Embedded(place.postgres).stop()
    return True


def _forget(session: Session, place: Installation) -> None:
    url = f"http://127.0.0.1:{place.settings().port}"
    session.save(session.config.without(url))
    shutil.rmtree(place.directory)
