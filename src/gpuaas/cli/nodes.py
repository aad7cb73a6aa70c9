"""`gpuaas node`: the fleet, for operators."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.confirm import confirm
from gpuaas.cli.offers import memory
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration

if TYPE_CHECKING:
    from gpuaas.sdk.types import DrainView, NodeView, SlotView


@click.group(cls=Group)
def node() -> None:
    """The fleet: nodes and their slots."""


@node.command("join-token")
@click.option("--org", metavar="ORG", help="The node serves this organisation only.")
@click.option("--approve-slots", is_flag=True, help="Use what the node proposes without another look.")
@click.option("--expires", type=duration, default="1h", show_default=True, help="Lifetime, like 30m or 1d.")
@click.pass_obj
def join_token(session: Session, org: str | None, approve_slots: bool, expires: int) -> None:
    """Make a token that lets one node join, once. Only the secret goes to stdout."""
    made = session.client().nodes.join_token(org=org, approve_slots=approve_slots, lifetime_seconds=expires)
    if session.json:
        return output.json(made)
    output.note(f"Valid until {output.moment(made.expires_at)}. On the node, as root:")
    output.note(f"gpuaas agent join {session.server} TOKEN")
    return output.echo(output.safe(made.secret))


@node.command()
@click.pass_obj
def ls(session: Session) -> None:
    """List nodes."""
    found = list(session.client().nodes.list())
    if session.json:
        return output.json_page(found)
    rows = [_row(item) for item in found]
    columns = ("NAME", "STATE", "READY", "GPUS", "SLOTS", "ADDRESS", "LAST SEEN")
    return output.table(columns, rows, empty="No nodes. `gpuaas node join-token` lets one join.")


def _row(item: "NodeView") -> tuple[object, ...]:
    used = sum(1 for slot in item.slots if slot.allocation_id)
    approved = sum(1 for slot in item.slots if slot.state == "approved")
    ready = "drained" if item.drain else "yes" if item.ready else item.reason or "no"
    slots = f"{used} of {approved} used" if item.slots else ""
    return item.name, item.state, ready, item.gpus, slots, item.address, output.age(item.last_seen_at)


@node.command()
@click.argument("name", metavar="NODE")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show one node with its slots."""
    show_node(session, session.client().nodes.show(name))


@node.command()
@click.argument("name", metavar="NODE")
@click.argument("slots", nargs=-1, metavar="[SLOT]...")
@click.pass_obj
def approve(session: Session, name: str, slots: tuple[str, ...]) -> None:
    """Approve slots of a node, by default all that it proposes. Only approved slots are given out."""
    show_node(session, session.client().nodes.approve(name, slots))


@node.command("return")
@click.argument("name", metavar="NODE")
@click.argument("slot")
@click.pass_obj
def return_slot(session: Session, name: str, slot: str) -> None:
    """Give a quarantined slot back to placement, after you have looked at it."""
    show_node(session, session.client().nodes.return_slot(name, slot))


@node.command()
@click.argument("name", metavar="NODE")
@click.option("--reason", "-r", required=True, help="Told to everybody who has a machine there.")
@click.option("--deadline", type=duration, help="Release what is still there after this time, like 2h.")
@click.pass_obj
def drain(session: Session, name: str, reason: str, deadline: int | None) -> None:
    """Place nothing new on a node, and tell who is there."""
    show_node(session, session.client().nodes.drain(name, reason, deadline_seconds=deadline))


@node.command()
@click.argument("name", metavar="NODE")
@click.pass_obj
def undrain(session: Session, name: str) -> None:
    """Use a drained node again."""
    show_node(session, session.client().nodes.undrain(name))


@node.command()
@click.argument("name", metavar="NODE")
@click.argument("org", required=False)
@click.pass_obj
def pool(session: Session, name: str, org: str | None) -> None:
    """Give a node to one organisation only; without ORG to everybody."""
    show_node(session, session.client().nodes.set_pool(name, org))


@node.command("strays")
@click.argument("name", metavar="NODE")
@click.pass_obj
def strays(session: Session, name: str) -> None:
    """Machines that a node has and a restored database does not know. They run on; nobody else gets their slots."""
    found = list(session.client().nodes.strays(name))
    if session.json:
        return output.json_page(found)
    rows = [
        (item.id, ", ".join(item.slots), output.moment(item.seen_at), "removing" if item.removed_at else "kept")
        for item in found
    ]
    return output.table(("ID", "SLOTS", "SEEN", "STATE"), rows, empty=f"{name} has nothing that the database lacks.")


@node.command("remove-stray")
@click.argument("name", metavar="NODE")
@click.argument("id", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove_stray(session: Session, name: str, id: str, yes: bool) -> None:
    """Have a node delete a machine that the database does not know, with all its data."""
    lost = f"{id} on {name} is stopped, and all that its users have saved there is deleted."
    confirm(session, id, [lost, "Nobody can bring it back."], yes=yes)
    found = session.client().nodes.remove_stray(name, id)
    if session.json:
        return output.json(found)
    output.echo(output.safe(f"{name} removes {found.id}."))
    return output.note(f"`gpuaas node return {name} SLOT` gives its slots back.")


def state(node: "NodeView", slot: "SlotView") -> str:
    """What matters to whoever looks for a free one."""
    if slot.state != "approved":
        return slot.state
    return "scrubbing" if slot.scrubbing else "drained" if slot.drain or node.drain else slot.state


def _slot_row(node: "NodeView", s: "SlotView") -> tuple[object, ...]:
    why = s.reason or drained(s.drain)
    where = s.numa, s.link_group
    return s.name, state(node, s), s.gpu_model, len(s.gpus), s.cpus, memory(s.memory_mib), *where, s.allocation_id, why


def drained(drain: "DrainView | None") -> str:
    if drain is None:
        return ""
    until = f", released at {output.moment(drain.deadline)}" if drain.deadline else ""
    return f"{drain.reason}{until}"


def show_node(session: Session, item: "NodeView") -> None:
    if session.json:
        return output.json(item)
    output.fields(
        [
            ("name", item.name),
            ("id", item.id),
            ("state", item.state),
            ("drained", drained(item.drain)),
            ("ready", "yes" if item.ready else item.reason or "no"),
            ("address", item.address),
            ("gpus", item.gpus),
            ("agent", item.agent_version),
            ("organisation", item.org_id),
            ("last seen", output.moment(item.last_seen_at)),
            ("joined", output.moment(item.created_at)),
        ]
    )
    output.echo()
    rows = [_slot_row(item, slot) for slot in item.slots]
    return output.table(("SLOT", "STATE", "MODEL", "GPUS", "CPUS", "MEMORY", "NUMA", "LINK", "MACHINE", "REASON"), rows)
