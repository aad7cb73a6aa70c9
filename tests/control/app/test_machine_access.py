"""Swapping the keys on a machine: in which states, whose keys, and that what is taken away never comes back."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from control.cluster import Cluster
from control.fleet import Agent, condition
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.app import keys, machine_access
from gpuaas.control.operations import reachability
from gpuaas.control.store import identity, operations
from gpuaas.control.store.transaction import Tx
from gpuaas.control.sweeps import queue
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.operation import Operation
from gpuaas.wire.api import Launch
from gpuaas.wire.node import Failure, StepReport


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With two keys: `laptop`, and `desk`."""
    add_key(cluster, cluster.caller, "desk")
    return cluster


def add_key(cluster: Cluster, caller: Caller, name: str) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    cluster.store.transact(keys.add_key, caller, name, public.decode())


def set_keys(cluster: Cluster, id: str, *wanted: str, caller: Caller | None = None) -> Operation:
    return cluster.store.transact(machine_access.set_keys, caller or cluster.caller, id, wanted)[1]


def let_in(cluster: Cluster, agent: Agent, id: str) -> list[str]:
    """What the node was told last."""
    body = agent.specs[id].body
    assert body is not None
    names = {row.fingerprint: row.name for row in cluster.sql("SELECT name, fingerprint FROM ssh_keys")}
    return sorted(names[key.fingerprint] for key in body.keys)


def listed(cluster: Cluster, id: str) -> list[str]:
    return sorted(key.name for key in cluster.store.transact(machine_access.list_keys, cluster.caller, id)[0])


def refused(cluster: Cluster, id: str, wanted: Sequence[str], caller: Caller | None = None) -> str:
    with pytest.raises(Problem) as problem:
        set_keys(cluster, id, *wanted, caller=caller)
    assert problem.value.hint
    return problem.value.code


def member(cluster: Cluster, name: str) -> Caller:
    """Another editor of the project, with a key of their own."""

    def work(tx: Tx) -> Caller:
        user = people.add_user(tx, f"{name}@example.org", name, None, None)
        people.set_member(tx, cluster.caller, cluster.project.id, user.id, "editor")
        return Caller(user.id, user.email, user.name, None, "tk-test", ("*",))

    made = cluster.store.transact(work)
    add_key(cluster, made, f"{name}-laptop")
    return made


def test_a_swap_reaches_the_running_machine_and_is_listed_at_once(cluster: Cluster) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    started = agent.specs[id]
    operation = set_keys(cluster, id, "desk", "desk")
    assert (operation.kind, operation.state) == ("access.update", "running")
    assert [phase["name"] for phase in operation.phases] == ["deliver", "access", "ready"]
    assert cluster.allocation(id).state == "active"
    assert listed(cluster, id) == ["desk"]
    agent.settle()
    assert let_in(cluster, agent, id) == ["desk"]
    assert cluster.operation(id).state == "succeeded"
    now = agent.specs[id]
    assert started.body is not None
    assert now.body is not None
    assert (now.generation, now.body.restarts) == (started.generation + 1, started.body.restarts)
    set_keys(cluster, id)
    agent.settle()
    assert (let_in(cluster, agent, id), listed(cluster, id)) == ([], [])


def test_a_queued_machine_is_launched_with_the_newer_keys(cluster: Cluster) -> None:
    id = cluster.launch(wait=True)
    assert set_keys(cluster, id, "desk").state == "succeeded"
    assert cluster.allocation(id).state == "queued"
    agent = cluster.agent()
    queue.sweep(cluster.store)
    agent.settle()
    assert cluster.allocation(id).state == "active"
    assert let_in(cluster, agent, id) == ["desk"]


@pytest.mark.parametrize("state", ["provisioning", "restarting", "unreachable"])
def test_a_machine_that_is_on_its_way_gets_them_when_it_is_there(cluster: Cluster, state: str) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    if state != "provisioning":
        agent.settle()
    if state == "restarting":
        cluster.restart(id)
    if state == "unreachable":
        cluster.sql("UPDATE nodes SET state = 'lost'")
        cluster.store.transact(reachability.follow, agent.node_id)
    set_keys(cluster, id, "desk")
    assert cluster.allocation(id).state == state
    agent.settle()
    assert cluster.allocation(id).state == "active"
    assert let_in(cluster, agent, id) == ["desk"]
    assert cluster.store.transact(operations.running, id) == []


def test_where_there_is_no_machine_it_is_refused(cluster: Cluster) -> None:
    agent = cluster.agent()
    failed, released = cluster.launch("failed"), cluster.launch("released")
    agent.settle(failing=frozenset({"failed"}))
    assert cluster.allocation(failed).allowed_actions == ("release",)
    assert refused(cluster, failed, ["desk"]) == "not_in_this_state"
    cluster.release(released)
    assert refused(cluster, released, ["desk"]) == "not_in_this_state"
    assert listed(cluster, released) == []
    agent.settle()
    assert refused(cluster, released, ["desk"]) == "not_in_this_state"


def test_only_registered_keys_of_the_owner_get_in(cluster: Cluster) -> None:
    cluster.agent()
    id = cluster.launch()
    other = member(cluster, "bob")
    assert refused(cluster, id, ["no-such"]) == "not_found"
    assert refused(cluster, id, ["bob-laptop"]) == "not_found"
    assert refused(cluster, id, ["bob-laptop"], caller=other) == "not_found"
    set_keys(cluster, id, "desk", caller=other)  # an editor may choose among the owner's
    assert listed(cluster, id) == ["desk"]


def test_a_failed_change_brings_the_last_good_keys_back(cluster: Cluster) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    set_keys(cluster, id, "desk")
    (spec,) = agent.pull()
    step = StepReport("access", "failed", message="no")
    agent.report(condition(spec, "failed", steps=[step], failure=Failure("access_failed", "No keys could be set.")))
    operation = cluster.operation(id)
    assert (operation.state, operation.failure_code) == ("failed", "access_failed")
    found = cluster.allocation(id)
    assert (found.state, found.failure_code, found.generation) == ("active", None, spec.generation + 1)
    assert listed(cluster, id) == ["desk", "laptop"]
    agent.settle()
    assert let_in(cluster, agent, id) == ["desk", "laptop"]


def test_a_deleted_key_leaves_every_machine_in_the_same_transaction(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=3)
    both, only, without = cluster.launch("both"), cluster.launch("only"), cluster.launch("without")
    waiting = cluster.launch("waiting", wait=True)
    agent.settle()
    set_keys(cluster, only, "desk")
    set_keys(cluster, without, "laptop")
    agent.settle()
    cluster.store.transact(keys.remove_key, cluster.caller, "desk")
    assert {spec.id for spec in agent.pull()} == {both, only}
    assert [let_in(cluster, agent, id) for id in (both, only, without)] == [["laptop"], [], ["laptop"]]
    assert [listed(cluster, id) for id in (both, only, waiting)] == [["laptop"], [], ["laptop"]]
    kinds = {id: cluster.operation(id) for id in (both, only, waiting)}
    assert {operation.kind for operation in kinds.values()} == {"access.update"}
    assert [kinds[id].state for id in (both, only, waiting)] == ["running", "running", "succeeded"]
    (entry,) = cluster.sql("SELECT data FROM audit WHERE action = 'key.remove'")
    assert set(entry.data["machines"]) == {both, only, waiting}


def test_a_deleted_key_does_not_come_back_when_a_change_fails(cluster: Cluster) -> None:
    """Also where it was about to be swapped away already: the last good body still had it."""
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    set_keys(cluster, id, "desk")
    cluster.store.transact(keys.remove_key, cluster.caller, "laptop")
    agent.settle(failing=frozenset({"a"}))
    assert let_in(cluster, agent, id) == ["desk"], "the last good keys were laptop and desk"
    assert listed(cluster, id) == ["desk"]


def test_who_leaves_the_project_gets_into_none_of_its_machines(cluster: Cluster) -> None:
    agent = cluster.agent()
    bob = member(cluster, "bob")
    mine = cluster.launch("mine")
    admin, cluster.caller = cluster.caller, bob
    theirs = cluster.launch("theirs")
    cluster.caller = admin
    agent.settle()
    cluster.store.transact(people.remove_member, admin, cluster.project.id, bob.user_id)
    agent.settle()
    assert let_in(cluster, agent, theirs) == []
    assert let_in(cluster, agent, mine) == ["desk", "laptop"]
    assert refused(cluster, theirs, ["bob-laptop"]) == "owner_left"
    assert refused(cluster, theirs, ["bob-laptop"], caller=bob) == "not_found"
    set_keys(cluster, theirs)  # none at all is always possible
    cluster.store.transact(people.set_member, admin, cluster.project.id, bob.user_id, "viewer")
    set_keys(cluster, theirs, "bob-laptop")


def test_a_tenant_admin_who_leaves_a_project_still_has_every_right_there(cluster: Cluster) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    cluster.store.transact(identity.set_member, cluster.project.id, cluster.caller.user_id, "editor")
    cluster.store.transact(people.remove_member, cluster.caller, cluster.project.id, cluster.caller.user_id)
    assert agent.pull() == []
    assert listed(cluster, id) == ["desk", "laptop"]


def test_tokens_are_not_keys(cluster: Cluster) -> None:
    """A scope that covers launching does not cover letting people in."""
    id = cluster.launch(wait=True)
    narrow = Caller(**{**cluster.caller.__dict__, "scopes": ("allocation.launch", "allocation.restart")})
    assert refused(cluster, id, ["desk"], caller=narrow) == "token_scope"


@pytest.mark.parametrize("verb", ["launch", "set_keys"])
@pytest.mark.parametrize("taken", ["key", "membership"])
def test_what_is_taken_away_in_the_same_moment_is_taken_away(cluster: Cluster, verb: str, taken: str) -> None:
    """Who takes it away waits until a machine that is just getting the key is there to be seen."""
    agent = cluster.agent()
    bob, admin = member(cluster, "bob"), cluster.caller
    cluster.caller = bob
    id = cluster.launch("there")
    agent.settle()
    written, go_on = threading.Event(), threading.Event()

    def put(tx: Tx) -> None:
        if verb == "launch":
            verbs.launch(tx, bob, Launch("new", "h100-1"))
        else:
            machine_access.set_keys(tx, bob, id, ["bob-laptop"])
        written.set()
        assert go_on.wait(30)

    def take() -> None:
        if taken == "key":
            cluster.store.transact(keys.remove_key, bob, "bob-laptop")
        else:
            cluster.store.transact(people.remove_member, admin, cluster.project.id, bob.user_id)

    with ThreadPoolExecutor(2) as pool:
        putting = pool.submit(cluster.store.transact, put)
        assert written.wait(30)
        taking = pool.submit(take)
        with pytest.raises(TimeoutError):
            taking.result(0.3)
        go_on.set()
        putting.result(30)
        taking.result(30)
    agent.settle()
    assert {spec.id for spec in agent.specs.values() if spec.body and spec.body.keys} == set()
