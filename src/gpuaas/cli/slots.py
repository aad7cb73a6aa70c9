"""`gpuaas slot`: the parts of nodes that are given out, for operators."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.nodes import drained, show_node, state
from gpuaas.cli.offers import memory
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration

if TYPE_CHECKING:
    from gpuaas.sdk.types import GpuScrubView, NodeView, SlotView

_node, _slot = click.argument("node", metavar="NODE"), click.argument("name", metavar="SLOT")
_reason = click.option("--reason", "-r", required=True, help="Why.")


@click.group(cls=Group)
def slot() -> None:
    """The parts of nodes that are given out."""


@slot.command()
@click.argument("node", metavar="[NODE]", required=False)
@click.pass_obj
def ls(session: Session, node: str | None) -> None:
    """List slots, of one node or of all."""
    nodes = [session.client().nodes.show(node)] if node else list(session.client().nodes.list())
    if session.json:
        return output.json_page([item for found in nodes for item in found.slots])
    rows = [_row(found, item) for found in nodes for item in found.slots]
    columns = ("NODE", "SLOT", "STATE", "MODEL", "GPUS", "NUMA", "LINK", "MACHINE", "REASON")
    return output.table(columns, rows, empty="No slots. `gpuaas node ls` shows what has joined.")


@slot.command()
@_node
@_slot
@click.pass_obj
def show(session: Session, node: str, name: str) -> None:
    """Show one slot, with the evidence of its last scrub."""
    found = session.client().nodes.show(node)
    item = next((each for each in found.slots if name in (each.id, each.name)), None)
    if item is None:
        raise Invalid(f"{node} has no slot {name}.", f"`gpuaas slot ls {node}` lists them.")
    if session.json:
        return output.json(item)
    output.fields(
        [
            ("slot", item.name),
            ("id", item.id),
            ("node", found.name),
            ("state", state(found, item)),
            ("reason", item.reason or drained(item.drain or found.drain)),
            ("machine", item.allocation_id),
            ("model", item.gpu_model),
            ("cpus", item.cpus),
            ("memory", memory(item.memory_mib)),
            ("last scrub", _last_scrub(item)),
        ]
    )
    output.echo()
    said = {each.gpu: each for each in item.last_scrub.gpus} if item.last_scrub else {}
    rows = [(gpu, *_evidence(said.get(gpu))) for gpu in item.gpus]
    return output.table(("GPU", "CLEAN", "EVIDENCE"), rows)


def _last_scrub(item: "SlotView") -> str:
    last = item.last_scrub
    if last is None:
        return "none yet"
    after = f"after {last.allocation_id}" if last.allocation_id else "when it was returned"
    return f"{output.moment(last.at)}, {after}"


def _evidence(scrub: "GpuScrubView | None") -> tuple[str, str]:
    return ("", "") if scrub is None else ("yes" if scrub.clean else "no", scrub.evidence)


def _row(node: "NodeView", item: "SlotView") -> tuple[object, ...]:
    reason = item.reason or drained(item.drain or node.drain)
    return (
        node.name,
        item.name,
        state(node, item),
        item.gpu_model,
        len(item.gpus),
        item.numa,
        item.link_group,
        item.allocation_id,
        reason,
    )


@slot.command()
@_node
@_slot
@_reason
@click.pass_obj
def quarantine(session: Session, node: str, name: str, reason: str) -> None:
    """Set a slot aside until it is returned; whoever has it keeps it."""
    show_node(session, session.client().nodes.quarantine(node, name, reason))


@slot.command("return")
@_node
@_slot
@click.pass_obj
def return_(session: Session, node: str, name: str) -> None:
    """Give a quarantined slot back to placement, after you have looked at it."""
    show_node(session, session.client().nodes.return_slot(node, name))


@slot.command()
@_node
@_slot
@_reason
@click.option("--deadline", type=duration, help="Release what is still there after this time, like 2h.")
@click.pass_obj
def drain(session: Session, node: str, name: str, reason: str, deadline: int | None) -> None:
    """Place nothing new on a slot, and tell who is there."""
    show_node(session, session.client().nodes.drain(node, reason, slot=name, deadline_seconds=deadline))


@slot.command()
@_node
@_slot
@click.pass_obj
def undrain(session: Session, node: str, name: str) -> None:
    """Use a drained slot again."""
    show_node(session, session.client().nodes.undrain(node, slot=name))
