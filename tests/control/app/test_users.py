"""Disabling somebody: what they have open ends with the commit, and does not come back by itself."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from control.app.test_machine_access import let_in, member, refused
from control.cluster import Cluster
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.app import sessions, users
from gpuaas.control.store import identity, tokens
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, Stale
from gpuaas.model.identity import Caller, User
from gpuaas.wire.api import Launch


def disable(cluster: Cluster, user_id: str, **more: str) -> User:
    email = cluster.sql("SELECT email FROM users WHERE id = :id", id=user_id)[0].email
    return cluster.store.transact(
        users.disable, cluster.caller, user_id, **{"confirm": email, "reason": "test", **more}
    )


def problem(cluster: Cluster, user_id: str, **more: str) -> str:
    with pytest.raises(Problem) as found:
        disable(cluster, user_id, **more)
    assert found.value.hint
    return found.value.code


def log_in(cluster: Cluster, caller: Caller) -> str:
    def work(tx: Tx) -> str:
        user = identity.user(tx, caller.user_id)
        assert user is not None
        return sessions.login(tx, user, "192.0.2.7")[1]

    return cluster.store.transact(work)


def works(cluster: Cluster, secret: str) -> bool:
    return cluster.store.transact(tokens.caller, secret) is not None


def test_everything_ends_at_once_and_nothing_comes_back_by_itself(cluster: Cluster) -> None:
    agent = cluster.agent()
    bob, admin = member(cluster, "bob"), cluster.caller
    cluster.caller = bob
    id = cluster.launch("theirs")
    cluster.caller = admin
    agent.settle()
    secret = log_in(cluster, bob)
    assert let_in(cluster, agent, id) == ["bob-laptop"]
    assert disable(cluster, bob.user_id).disabled_at is not None
    assert not works(cluster, secret)
    agent.settle()
    assert let_in(cluster, agent, id) == []
    assert cluster.allocation(id).state == "active", "the machine runs on, for the team"
    assert refused(cluster, id, ["bob-laptop"]) == "owner_left"
    (entry,) = cluster.sql("SELECT data FROM audit WHERE action = 'user.disable'")
    assert entry.data["machines"] == [id]
    disable(cluster, bob.user_id)  # twice is no error
    assert cluster.store.transact(users.enable, admin, bob.user_id).disabled_at is None
    agent.settle()
    assert (works(cluster, secret), let_in(cluster, agent, id)) == (False, [])
    assert works(cluster, log_in(cluster, bob))


def test_a_disabled_user_cannot_log_in(cluster: Cluster) -> None:
    hashed = sessions.hash_password("correct horse battery")
    user = cluster.store.transact(people.add_user, "eve@example.org", "Eve", hashed, None)
    found = cluster.store.transact(sessions.password_of, "eve@example.org")
    assert sessions.check_password(found, "correct horse battery").id == user.id
    disable(cluster, user.id)
    with pytest.raises(Problem, match="wrong"):
        sessions.check_password(
            cluster.store.transact(sessions.password_of, "eve@example.org"), "correct horse battery"
        )
    with pytest.raises(Stale):  # who had proven the password just before
        cluster.store.transact(sessions.login, user, "192.0.2.7")


def test_whom_nobody_disables(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    assert problem(cluster, bob.user_id, confirm="alice@example.org") == "not_confirmed"
    assert problem(cluster, cluster.caller.user_id) == "own_account"
    second = cluster.store.transact(people.add_user, "second@example.org", "S", None, "platform_admin")
    other = Caller(second.id, second.email, second.name, "platform_admin", "tk-test", ("*",))
    admin, cluster.caller = cluster.caller, other
    disable(cluster, admin.user_id)
    cluster.caller = admin  # whose request was already past the door
    assert problem(cluster, second.id) == "last_administrator"


@pytest.mark.parametrize("verb", ["launch", "login"])
@pytest.mark.parametrize("first", ["they", "the administrator"])
def test_what_is_made_in_the_same_moment_ends_too(cluster: Cluster, verb: str, first: str) -> None:
    agent = cluster.agent()
    bob = member(cluster, "bob")
    made: list[str] = []
    done, go_on = threading.Event(), threading.Event()

    def make(tx: Tx) -> None:
        if verb == "launch":
            verbs.launch(tx, bob, Launch("new", "h100-1"))
        else:
            made.append(tokens.insert_token(tx, bob.user_id, "new", ("*",), tx.now.replace(year=2100))[1])
        if first == "they":
            done.set()
            assert go_on.wait(30)

    def end(tx: Tx) -> None:
        users.disable(tx, cluster.caller, bob.user_id, bob.email, "test")
        if first != "they":
            done.set()
            assert go_on.wait(30)

    early, late = (make, end) if first == "they" else (end, make)
    with ThreadPoolExecutor(2) as pool:
        leading = pool.submit(cluster.store.transact, early)
        assert done.wait(30)
        following = pool.submit(cluster.store.transact, late)
        with pytest.raises(TimeoutError):
            following.result(0.3)
        go_on.set()
        leading.result(30)
        if first == "they":
            following.result(30)
        else:
            with pytest.raises((Problem, Stale)):
                following.result(30)
    agent.settle()
    assert [spec.id for spec in agent.specs.values() if spec.body and spec.body.keys] == []
    cluster.store.transact(users.enable, cluster.caller, bob.user_id)
    assert not [secret for secret in made if works(cluster, secret)]


def test_an_administrator_ends_the_logins_of_somebody_who_may_come_back(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    old = [log_in(cluster, bob), log_in(cluster, bob)]
    assert cluster.store.transact(users.end_tokens, cluster.caller, bob.email) == 2
    assert [works(cluster, secret) for secret in old] == [False, False]
    assert works(cluster, log_in(cluster, bob))


def test_one_ends_all_others_of_ones_own(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    old, kept = log_in(cluster, bob), log_in(cluster, bob)
    mine = cluster.store.transact(tokens.caller, kept)
    assert mine is not None
    assert cluster.store.transact(sessions.end_others, mine) == 1
    assert (works(cluster, old), works(cluster, kept)) == (False, True)
    (listed,) = cluster.store.transact(sessions.list_tokens, mine)
    assert (listed.kind, listed.source) == ("password", "192.0.2.7")
