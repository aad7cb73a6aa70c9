"""Whether the machines of a project may talk to each other: said by its leads, followed at the next start."""

import pytest

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller


def is_open(agent: Agent, id: str) -> bool:
    body = agent.specs[id].body
    assert body is not None
    return body.open_network


def test_machines_follow_when_they_are_launched_or_restarted(cluster: Cluster) -> None:
    agent = cluster.agent()
    first = cluster.launch()
    agent.settle()
    assert not is_open(agent, first)
    changed = cluster.store.transact(people.set_network, cluster.caller, cluster.project.id, True)
    assert changed.open_network
    assert not is_open(agent, first)
    second = cluster.launch("second")
    cluster.store.transact(verbs.restart, cluster.caller, first, cluster.allocation(first).name)
    agent.settle()
    assert is_open(agent, first)
    assert is_open(agent, second)
    cluster.store.transact(people.set_network, cluster.caller, cluster.project.id, False)
    cluster.store.transact(verbs.restart, cluster.caller, first, cluster.allocation(first).name)
    agent.settle()
    assert not is_open(agent, first)


def test_an_editor_may_not(cluster: Cluster) -> None:
    def editor(tx: Tx) -> Caller:
        user = people.add_user(tx, "eve@example.org", "Eve", None, None)
        people.set_member(tx, cluster.caller, cluster.project.id, user.id, "editor")
        return Caller(user.id, user.email, user.name, None, "tk-test", ("*",))

    with pytest.raises(Problem) as refused:
        cluster.store.transact(people.set_network, cluster.store.transact(editor), cluster.project.id, True)
    assert refused.value.status == 403
