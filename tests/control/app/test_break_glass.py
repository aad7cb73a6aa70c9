"""Operators at tenants' objects: nothing without a reason, little with one, and nothing once it is over."""

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from control.cluster import Cluster
from gpuaas.control.app import access, break_glass, machine_access, operations, service_accounts
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.store import events
from gpuaas.control.store.transaction import Tx
from gpuaas.control.sweeps import expired_break_glass
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.permission import BREAK_GLASS_ACTIONS, PERMISSIONS
from gpuaas.wire.api import Launch

WHY = "INC-42: floods the network"


def operator(cluster: Cluster, role: str = "platform_ops") -> Caller:
    user = cluster.store.transact(people.add_user, f"{role}@example.org", role, None, role)
    return Caller(user.id, user.email, user.name, role, "tk-test", ("*",))


def do(cluster: Cluster, caller: Caller, verb: Any, *arguments: Any) -> Any:
    return cluster.store.transact(verb, caller, *arguments, actor=caller.user_id)


def refused(cluster: Cluster, caller: Caller, verb: Any, *arguments: Any) -> str:
    with pytest.raises(Problem) as found:
        do(cluster, caller, verb, *arguments)
    return found.value.code


def overdue(cluster: Cluster) -> None:
    cluster.sql("UPDATE break_glass SET expires_at = now() - interval '1 second'")


@pytest.mark.parametrize("role", ["platform_ops", "platform_admin"])
def test_without_it_nothing_of_a_tenant_is_there(cluster: Cluster, role: str) -> None:
    id = cluster.launch(wait=True)
    ops = operator(cluster, role)
    assert refused(cluster, ops, verbs.show, id) == "not_found"
    assert refused(cluster, ops, verbs.restart, id, "a") == "not_found"
    assert refused(cluster, ops, operations.list_audit, "home", 0, 10) == "not_found"
    assert do(cluster, ops, verbs.list_allocations, None, False, None, 10) == []
    assert do(cluster, ops, people.list_projects) == []


def test_with_it_an_operator_looks_and_stops_and_it_is_on_record(cluster: Cluster) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    ops = operator(cluster)
    entry, org, _ = do(cluster, ops, break_glass.open_, "home", WHY, 3600)
    assert org == "home"
    assert do(cluster, ops, verbs.show, "a").id == id
    assert [role for _, role in do(cluster, ops, people.list_projects)] == ["break_glass"]
    do(cluster, ops, machine_access.set_keys, id, [])
    agent.settle()
    do(cluster, ops, verbs.restart, id, "a")
    rows = cluster.sql("SELECT action, actor, data FROM audit WHERE actor = :id ORDER BY seq", id=ops.user_id)
    assert [row.action for row in rows] == ["break_glass.open", "allocation.access", "allocation.restart"]
    assert rows[0].data["reason"] == WHY
    assert [row.data.get("break_glass") for row in rows] == [None, entry.id, entry.id]
    told = [event.type for event in cluster.store.transact(events.events, cluster.project.id, 0, 1000)]
    assert "break_glass.open" in told
    assert cluster.store.transact(events.verify_audit, cluster.project.org_id)[1] is None
    cluster.restart(id)
    (mine,) = cluster.sql("SELECT data FROM audit WHERE actor = 'system' AND action = 'allocation.restart'")
    assert "break_glass" not in mine.data


def test_it_gives_nothing_that_would_outlast_it(cluster: Cluster) -> None:
    cluster.agent()
    ops = operator(cluster, "platform_admin")
    do(cluster, ops, break_glass.open_, "home", WHY, 3600)
    for verb, *arguments in (
        (verbs.launch, Launch("x", "h100-1", project="lab")),
        (people.set_member, "lab", ops.user_id, "admin"),
        (people.create_project, "side", "Side", "home"),
        (people.set_network, "lab", True),
        (service_accounts.create, "lab", "ci", "admin"),
    ):
        assert refused(cluster, ops, verb, *arguments) == "forbidden", verb
    lasting = {"allocation.launch", "allocation.connect", "member.write", "service_account.write", "project.create"}
    assert not lasting & BREAK_GLASS_ACTIONS
    assert {PERMISSIONS[action].scope for action in BREAK_GLASS_ACTIONS} == {"project", "org"}


def test_a_token_that_does_not_cover_it_is_no_use(cluster: Cluster) -> None:
    ops = operator(cluster)
    narrow = Caller(**{**ops.__dict__, "scopes": ("node.*",)})
    assert refused(cluster, narrow, break_glass.open_, "home", WHY, 3600) == "token_scope"
    do(cluster, ops, break_glass.open_, "home", WHY, 3600)
    assert refused(cluster, narrow, people.list_projects) == "token_scope"


def test_others_cannot_break_it_and_there_is_no_glass_around_the_platform(cluster: Cluster) -> None:
    nobody = operator(cluster)
    nobody = Caller(**{**nobody.__dict__, "platform_role": None})
    assert refused(cluster, nobody, break_glass.open_, "home", WHY, 3600) == "forbidden"
    assert refused(cluster, operator(cluster, "platform_admin"), break_glass.open_, "platform", WHY, 60) == "not_found"


def test_it_is_over_with_its_time_and_the_tenant_is_told(cluster: Cluster) -> None:
    ops = operator(cluster)
    do(cluster, ops, break_glass.open_, "home", WHY, 3600)
    cluster.store.transact(access.projects, ops, "project.read")
    overdue(cluster)
    assert do(cluster, ops, people.list_projects) == [], "before anybody swept"
    assert expired_break_glass.sweep(cluster.store) == 1
    assert expired_break_glass.sweep(cluster.store) == 0
    (entry,) = cluster.sql("SELECT actor FROM audit WHERE action = 'break_glass.expire'")
    assert entry.actor == "system"
    ((shown, _, _),) = do(cluster, cluster.caller, break_glass.list_for_tenant, "home", None, 10)
    assert (shown.ended_by, shown.reason) == ("system", WHY)


def test_more_than_eight_hours_are_not_to_be_had(cluster: Cluster) -> None:
    ops = operator(cluster)
    with pytest.raises(IntegrityError):
        do(cluster, ops, break_glass.open_, "home", WHY, 8 * 3600 + 1)
    do(cluster, ops, break_glass.open_, "home", WHY, 8 * 3600)


@pytest.mark.parametrize("by", ["operator", "tenant"])
def test_it_ends_early(cluster: Cluster, by: str) -> None:
    ops = operator(cluster)
    first, _, _ = do(cluster, ops, break_glass.open_, "home", WHY, 3600)
    second, _, _ = do(cluster, ops, break_glass.open_, "home", "INC-43: something else", 60)
    woken: set[str] = set()

    def end(tx: Tx, caller: Caller) -> None:
        if by == "operator":
            break_glass.end(tx, caller, second.id)
        else:
            break_glass.end_for_tenant(tx, caller, "home", second.id)
        woken.update(tx.topics)

    do(cluster, ops if by == "operator" else cluster.caller, end)
    assert f"user:{ops.user_id}" in woken
    assert do(cluster, ops, people.list_projects) == []
    listed = do(cluster, cluster.caller, break_glass.list_for_tenant, "home", None, 10)
    assert {item.id: item.ended_at is None for item, _, _ in listed} == {first.id: False, second.id: False}
    do(cluster, ops, break_glass.end, first.id)  # twice is no error
    assert refused(cluster, cluster.caller, break_glass.end_for_tenant, "home", "bg-aaaaaaaaaaaaaaaa") == "not_found"


def test_who_is_a_member_anyway_needs_none(cluster: Cluster) -> None:
    """The first administrator is tenant_admin of home: by membership, not by platform role."""
    assert cluster.caller.platform_role == "platform_admin"
    assert [role for _, role in do(cluster, cluster.caller, people.list_projects)] == ["admin"]
