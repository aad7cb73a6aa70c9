"""`gpuaas top`: what machines use and how they are, live."""

import sys
import time
from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import HealthView, UseView

REFRESH_SECONDS = 2.0
COLUMNS = ("NAME", "STATE", "GPU", "GPU MEM", "CPU", "MEMORY", "NET IN", "NET OUT", "SESSIONS", "HEALTH")
WAITING = frozenset({"queued", "provisioning"})  # they use nothing yet
HOME, CLEAR_BELOW = "\x1b[H", "\x1b[J"


@click.command(cls=Command)
@project_option
@click.option("--once", is_flag=True, help="Print it once and return; so it is without a terminal and with --json.")
@click.pass_obj
def top(session: Session, project: str | None, once: bool) -> None:
    """Show what the machines of your project use and how they are, every two seconds."""
    chosen = session.project(project)
    if session.json:
        return output.json_page(_machines(session, chosen))
    if once or not sys.stdout.isatty():
        return _show(_machines(session, chosen))
    click.clear()
    while True:
        found = _machines(session, chosen)
        sys.stdout.write(HOME + CLEAR_BELOW)  # only now: the old picture stays while the server is asked
        _show(found)
        time.sleep(REFRESH_SECONDS)


def _machines(session: Session, project: str | None) -> "list[HealthView]":
    found = session.client().allocations.health_of_all(project)
    return sorted((item for item in found if item.state not in WAITING), key=lambda item: item.name)


def _show(found: "list[HealthView]") -> None:
    output.table(COLUMNS, [_row(item) for item in found], empty="No machine runs here. `gpuaas ls` lists them all.")


def _row(item: "HealthView") -> tuple[object, ...]:
    use = item.use
    if use is None:
        return item.name, item.state, *[""] * 7, item.status
    return (
        item.name,
        item.state,
        _gpu_busy(use),
        _gpu_memory(use),
        "" if use.cpu_percent is None else f"{use.cpu_percent:.0f}%",
        f"{output.size(use.memory_bytes)}/{output.size(use.memory_limit_bytes)}",
        _per_second(use.network_received_bytes_per_second),
        _per_second(use.network_sent_bytes_per_second),
        use.sessions,
        item.status,
    )


def _gpu_busy(use: "UseView") -> str:
    """The average over its GPUs."""
    told = [gpu.busy_percent for gpu in use.gpus if gpu.busy_percent is not None]
    return f"{sum(told) / len(told):.0f}%" if told else ""


def _gpu_memory(use: "UseView") -> str:
    told = [(gpu.memory_used_mib, gpu.memory_mib) for gpu in use.gpus if gpu.memory_used_mib is not None]
    used, there = sum(used for used, _ in told), sum(there or 0 for _, there in told)
    return f"{output.size(used * 2**20)}/{output.size(there * 2**20)}" if told else ""


def _per_second(rate: float | None) -> str:
    return "" if rate is None else f"{output.size(rate)}/s"
