"""What each frame of a node means. Synchronous: one transaction in, answer frames out.

A session is only (node id, epoch): everything else is in the store, so that any replica can take any frame.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gpuaas.control.app.nodes import signed_by
from gpuaas.control.link import inventory, logins, samples
from gpuaas.control.operations import drift, scrub
from gpuaas.control.operations.observe import observe
from gpuaas.control.store import allocations, events, nodes, operations, specs, stores
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Node
from gpuaas.wire.node import (
    MAX_SPEC_BYTES,
    PROTOCOL,
    Ack,
    Fact,
    Fenced,
    FromServer,
    Heartbeat,
    Hello,
    Holdings,
    Report,
    Samples,
    Spec,
    Specs,
    Welcome,
)

log = logging.getLogger(__name__)

LEASE_SECONDS = 30
SPECS_PER_FRAME = 32
NONCE_PREFIX = b"gpuaas-node-link:"
RESERVED = {"org_id", "project_id", "kind", "id", "name", "type", "user"}  # said by us, not by a node


@dataclass(frozen=True)
class Session:
    node_id: str
    epoch: int
    journal: str
    traces: bool = False  # it wants to know under which correlation id something was asked for
    runtimes: bool = False  # it knows what to do with a machine's runtimes
    scrubs: bool = False  # it can scrub the GPUs of a slot without a machine


def greet(tx: Tx, hello: Hello, nonce: str) -> tuple[Session, Welcome] | Fenced:
    """A node connects: prove the key, fence older connections, see whether it is on the same page as this store."""
    key = nodes.public_key(tx, hello.node_id)
    if hello.protocol != PROTOCOL:
        return Fenced(f"this server speaks protocol {PROTOCOL}, the agent {hello.protocol}: upgrade the older one")
    if key is None or not signed_by(key, NONCE_PREFIX + nonce.encode(), hello.signature):
        return Fenced("unknown node, or its key does not fit: join again")
    node = nodes.node(tx, hello.node_id, lock=True)
    assert node is not None
    store_id = stores.current(tx)
    if hello.store_id == store_id and hello.revision > node.revision:
        # The node has seen revisions that this database does not remember: it was restored from an older copy.
        log.error("this store is older than its nodes; every node must say what it holds")
        store_id = stores.rotate(tx)
        node = nodes.node(tx, hello.node_id)
        assert node is not None
    said = msgspec.to_builtins(hello.inventory)
    epoch = nodes.greet(tx, node.id, said, hello.agent_version, hello.runtimes)
    inventory.reconcile(tx, node, hello.inventory)
    synced = hello.store_id == store_id and node.synced_store_id == store_id
    _heard(tx, node, synced)
    session = Session(node.id, epoch, hello.journal_incarnation, hello.traces, hello.runtimes, hello.scrubs)
    return session, Welcome(store_id, epoch, synced, LEASE_SECONDS)


def receive(tx: Tx, session: Session, frame: Holdings | Report | Samples | Heartbeat) -> list[FromServer]:
    if isinstance(frame, Heartbeat) and heartbeats(tx, [(session, frame)]).get(session.node_id) is not None:
        return [Ack(frame.seq, LEASE_SECONDS)]
    if isinstance(frame, Report):
        # Facts happened, whoever is fenced: they are recorded before anything else is looked at.
        _hold(tx, frame)
        for fact in frame.facts:
            _happened(tx, session, fact)
    node, store_id = nodes.here(tx, session.node_id)
    if node is None or node.state == "removed":
        return [Fenced("this node was removed")]
    if node.epoch != session.epoch or frame.epoch != session.epoch:
        return [Fenced("a newer connection of this node is open")]
    match frame:
        case Heartbeat():
            return _heartbeat(tx, node, store_id, frame)
        case Holdings():
            return _holdings(tx, node, store_id, frame)
        case Report():
            return _report(tx, node, store_id, frame)
        case Samples():
            samples.take(tx, node, frame.samples)
            return []


def heartbeats(tx: Tx, frames: Sequence[tuple[Session, Heartbeat]]) -> dict[str, int | None]:
    """The nodes, of those that beat here, that are as they were: the newest revision of the specs of each.

    None: somebody works on that node, try again. For any other one `receive` knows what it means, and waits.
    """
    said = [
        nodes.Beat(
            session.node_id,
            frame.epoch,
            frame.revision,
            frame.store_id,
            frame.at - tx.now.timestamp() if frame.at else None,
        )
        for session, frame in frames
        if frame.epoch == session.epoch
    ]
    return nodes.beats(tx, said)


def outgoing(tx: Tx, session: Session, since: int) -> Specs | None:
    """What the node has not seen yet; nothing before it has said what it holds."""
    node, store_id = nodes.here(tx, session.node_id)
    if node is None or node.epoch != session.epoch or node.synced_store_id != store_id or node.revision <= since:
        return None
    batch: list[Spec] = []
    size = 0
    found = specs.since(tx, node.id, since, SPECS_PER_FRAME)
    if session.traces:
        asked = operations.correlation_ids(tx, [spec.id for spec in found])
        found = [msgspec.structs.replace(spec, correlation_id=asked.get(spec.id, "")) for spec in found]
    if session.scrubs:
        found = [scrub.told(tx, spec) for spec in found]
    for spec in found if session.runtimes else map(_without_runtimes, found):
        size += len(msgspec.json.encode(spec))
        if batch and size > MAX_SPEC_BYTES:
            break
        batch.append(spec)
    cut = len(batch) < len(found) or len(found) == SPECS_PER_FRAME
    upto = batch[-1].revision if cut else max([node.revision, *(spec.revision for spec in batch)])
    return Specs(store_id, since, upto, batch)


def _without_runtimes(spec: Spec) -> Spec:
    """An agent that went back to an older version would refuse the whole machine."""
    if spec.body is None or not spec.body.runtimes:
        return spec
    return msgspec.structs.replace(spec, body=msgspec.structs.replace(spec.body, runtimes=[]))


def _hold(tx: Tx, report: Report) -> None:
    """Logins are recorded under the locks of their machines, which are taken in one order, before anything else."""
    if any(fact.kind in logins.TOLD_BY for fact in report.facts):
        for id in sorted({item.object_id for item in report.facts} | {item.id for item in report.conditions}):
            allocations.by_id(tx, id, lock=True)


def _happened(tx: Tx, session: Session, fact: Fact) -> None:
    """Recorded once, and shown in the activity of the project whose allocation it is about."""
    if not events.record_fact(tx, session.node_id, session.journal, fact):
        return
    allocation = allocations.by_id(tx, fact.object_id)
    if allocation is not None and allocation.node_id == session.node_id:
        more = logins.record(tx, allocation, session.journal, fact) if fact.kind in logins.TOLD_BY else {}
        if more is None:
            return
        tx.emit(
            f"fact.{fact.kind}",
            org_id=allocation.org_id,
            project_id=allocation.project_id,
            kind="allocation",
            id=allocation.id,
            name=allocation.name,
            **{key: value for key, value in fact.data.items() if key not in RESERVED},
            **more,
        )


def _heartbeat(tx: Tx, node: Node, store_id: str, frame: Heartbeat) -> list[FromServer]:
    if frame.store_id != store_id or frame.revision > node.revision:
        return [Fenced("the store has changed: say hello again")]
    _heard(tx, node, synced=node.synced_store_id == store_id)
    if frame.at:
        nodes.set_clock_skew(tx, node.id, frame.at - tx.now.timestamp())
    return [Ack(frame.seq, LEASE_SECONDS)]


def _holdings(tx: Tx, node: Node, store_id: str, frame: Holdings) -> list[FromServer]:
    if frame.store_id != store_id:
        return [Fenced("the store has changed: say hello again")]
    if node.synced_store_id == store_id:
        return [Ack(frame.seq)]  # said before; the answer was lost
    for holding in sorted(frame.objects, key=lambda item: item.id):
        drift.reconcile(tx, node.id, holding)
    if frame.final:
        nodes.synced(tx, node.id, store_id)
        current = nodes.node(tx, node.id, lock=True)
        assert current is not None
        _heard(tx, current, synced=True)
        tx.wake(f"node:{node.id}")
    return [Ack(frame.seq)]


def _report(tx: Tx, node: Node, store_id: str, frame: Report) -> list[FromServer]:
    if node.synced_store_id != store_id:
        return [Fenced("say what you hold first")]
    for condition in sorted(frame.conditions, key=lambda item: item.id):
        observe(tx, node.id, frame.epoch, frame.seq, condition)
    for holding in frame.unknown:
        drift.reconcile(tx, node.id, holding)
    if frame.inventory is not None:
        nodes.set_inventory(tx, node.id, msgspec.to_builtins(frame.inventory))
        inventory.reconcile(tx, node, frame.inventory)
    return [Ack(frame.seq)]


def _heard(tx: Tx, node: Node, synced: bool) -> None:
    if not synced:
        # Not seen yet: if this store was restored, it knew its machines until then, and that is what may be charged.
        if node.state in ("ready", "lost"):
            nodes.move(tx, node, "unsynced")
        return
    nodes.seen(tx, node.id)
    if node.state == "joined":
        nodes.move(tx, node, "synced")
    elif node.state == "lost":
        nodes.move(tx, node, "heard")
