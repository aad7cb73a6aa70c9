"""Slots and nodes under an operator's hands."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from sqlalchemy import make_url

from control.cluster import Cluster
from gpuaas.control.app import identity as people
from gpuaas.control.app import slots
from gpuaas.control.app.plans import plan
from gpuaas.control.app.streams import dials
from gpuaas.control.operations import drain
from gpuaas.control.store import drains as stored_drains
from gpuaas.control.store import identity
from gpuaas.control.store.transaction import CHANNEL, Tx
from gpuaas.control.sweeps import drains
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import Ids
from gpuaas.wire.node import Holding, Notice, from_server


class Later(SystemClock):
    def __init__(self, **more: int) -> None:
        self._more = timedelta(**more)

    def now(self) -> datetime:
        return super().now() + self._more


def ask(cluster: Cluster, verb: Any, *more: Any) -> Any:
    return cluster.store.transact(verb, cluster.caller, "node-1", *more)


def reasons(cluster: Cluster) -> set[str]:
    found = cluster.store.transact(plan, cluster.caller, "h100-1", None, 1)
    return {reason.code for reason in found.reasons}


def events(cluster: Cluster, type: str) -> list[Any]:
    return [row.data for row in cluster.sql("SELECT data FROM events WHERE type = :type ORDER BY seq", type=type)]


def test_a_drained_node_gets_nothing_new_and_its_users_are_told(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    id = cluster.launch("here")
    agent.settle()
    ask(cluster, slots.drain, None, "new fans", None)
    assert events(cluster, "drain.started") == [{"name": "here", "reason": "new fans", "deadline": None}]
    with pytest.raises(Problem, match="gets nothing new"):
        cluster.launch("more")
    assert reasons(cluster) == {"node_drained"}
    assert drains.sweep(cluster.store) == 0
    assert cluster.allocation(id).state == "active"
    ask(cluster, slots.undrain, None)
    cluster.launch("more")


def test_at_the_deadline_what_is_there_is_released(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    id = cluster.launch("here")
    agent.settle()
    ask(cluster, slots.drain, None, "new fans", 3600)
    assert drains.sweep(cluster.store) == 0
    cluster.store.clock = Later(hours=2)
    cluster.sql("UPDATE nodes SET last_seen_at = now() + interval '2 hours'")
    assert drains.sweep(cluster.store) == 1
    assert drains.sweep(cluster.store) == 0, "once"
    agent.settle()
    assert cluster.allocation(id).state == "released"
    assert [said["reason"] for said in events(cluster, "drain.released")] == ["new fans"]


def test_who_is_on_a_drained_node_is_told_again_before_the_deadline(cluster: Cluster, database_url: str) -> None:
    agent = cluster.agent(gpus=2)
    id = cluster.launch("here")
    agent.settle()
    libpq = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        ask(cluster, slots.drain, None, "new fans \N{EM DASH} quieter", 3 * 3600)
        for minutes, told in ((119, 0), (121, 1), (122, 1), (169, 1), (171, 2), (175, 2)):
            cluster.store.clock = Later(minutes=minutes)
            drains.sweep(cluster.store)
            assert len(events(cluster, "drain.warning")) == told, minutes
        heard = [notice.payload.partition(" ")[::2] for notice in listener.notifies(timeout=2, stop_after=200)]
    read = [from_server(message) for topic, message in heard if topic == dials(agent.node_id)]
    mail = [notice for notice in read if isinstance(notice, Notice)]
    assert [notice.id for notice in mail] == [id] * 3
    assert all("new fans ? quieter" in notice.text for notice in mail)
    ask(cluster, slots.drain, None, "new fans, later", 3 * 3600)
    cluster.store.clock = Later(minutes=175 + 121)
    drains.sweep(cluster.store)
    assert len(events(cluster, "drain.warning")) == 3, "another deadline has its own"


def test_nobody_is_released_for_a_drain_that_was_lifted_meanwhile(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    id = cluster.launch("here")
    agent.settle()
    ask(cluster, slots.drain, None, "new fans", 3600)
    cluster.store.clock = Later(hours=2)
    (due,) = cluster.store.transact(stored_drains.over)
    ask(cluster, slots.drain, None, "new fans, later", 3600)
    assert not cluster.store.transact(drain.enforce, id, due), "it has a later deadline"
    ask(cluster, slots.undrain, None)
    assert not cluster.store.transact(drain.enforce, id, due), "it was lifted"
    assert cluster.allocation(id).state == "active"


def test_a_drained_slot_leaves_its_neighbours_alone(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    ask(cluster, slots.drain, "gpu-0", "a new GPU", None)
    id = cluster.launch("m")
    (slot,) = agent.pull()[0].body.slots  # type: ignore[union-attr]
    assert slot.gpus == ["GPU-node-1-1"]
    with pytest.raises(Problem):
        cluster.launch("more")
    assert reasons(cluster) == {"slot_in_use", "slot_drained"}
    assert cluster.allocation(id).state == "provisioning"


def test_a_slot_is_set_aside_with_a_reason_and_comes_back(cluster: Cluster) -> None:
    cluster.agent(gpus=1)
    _, found, *_ = ask(cluster, slots.quarantine, "gpu-0", "it smells")
    assert [(slot.state, slot.reason) for slot in found] == [("quarantined", "it smells")]
    assert reasons(cluster) == {"slot_quarantined"}
    _, found, *_ = ask(cluster, slots.quarantine, "gpu-0", "it burns")
    assert [slot.reason for slot in found] == ["it burns"]


def test_a_node_becomes_a_tenants_own_only_when_nobody_else_is_on_it(cluster: Cluster) -> None:
    """I21"""

    def other_org(tx: Tx) -> str:
        user = identity.user(tx, cluster.caller.user_id)
        assert user is not None
        return people.add_org(tx, "umbrella", "Umbrella", user).id

    agent = cluster.agent(gpus=2)
    id = cluster.launch("mine")
    agent.settle()
    cluster.store.transact(other_org)
    with pytest.raises(Problem, match="other organisations have machines"):
        ask(cluster, slots.set_pool, "umbrella")
    ask(cluster, slots.set_pool, "home")
    cluster.release(id)
    with pytest.raises(Problem, match="other organisations have machines"):
        ask(cluster, slots.set_pool, "umbrella")  # not scrubbed yet
    agent.settle()
    ask(cluster, slots.set_pool, "umbrella")
    with pytest.raises(Problem, match="another tenant's pool"):
        cluster.launch("more")
    ask(cluster, slots.set_pool, None)
    cluster.launch("more")


def test_a_node_with_machines_that_nobody_knows_does_not_become_a_tenants_own(cluster: Cluster) -> None:
    """I21, with a database that was restored: whose machine that is, nobody can say."""
    agent = cluster.agent(gpus=2)
    unknown = Holding(Ids().new("al"), 1, 3, 0, [cluster.slots(agent)[0].id], seat=0)
    agent.report(unknown=[unknown])
    with pytest.raises(Problem, match=f"does not know: {unknown.id}"):
        ask(cluster, slots.set_pool, "home")
    ask(cluster, slots.set_pool, None)
    agent.report(unknown=[msgspec.structs.replace(unknown, generation=4, gone=True)])
    ask(cluster, slots.set_pool, "home")
