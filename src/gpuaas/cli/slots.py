"""`gpuaas slot`: the parts of nodes that are given out, for operators."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.nodes import drained, show_node
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration

if TYPE_CHECKING:
    from gpuaas.sdk.types import NodeView, SlotView

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


def _row(node: "NodeView", item: "SlotView") -> tuple[object, ...]:
    state = "drained" if item.state == "approved" and (item.drain or node.drain) else item.state
    reason = item.reason or drained(item.drain or node.drain)
    return (
        node.name,
        item.name,
        state,
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
