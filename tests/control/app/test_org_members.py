"""Somebody leaves an organisation: what they have there ends with the commit, and no invitation brings them back."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from control.app.test_machine_access import let_in, member
from control.cluster import Cluster
from gpuaas.control.app import access, invitations, org_members
from gpuaas.control.app import identity as people
from gpuaas.control.store import identity
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.permission import TENANT_ADMIN


def remove(cluster: Cluster, who: str, by: Caller | None = None) -> None:
    cluster.store.transact(org_members.remove, by or cluster.caller, "home", who)


def refused(cluster: Cluster, who: str, by: Caller | None = None) -> str:
    with pytest.raises(Problem) as found:
        remove(cluster, who, by)
    return found.value.code


def emails(cluster: Cluster) -> set[str]:
    return {found.email for found in cluster.store.transact(org_members.list_members, cluster.caller, "home")}


def make_admin(cluster: Cluster, caller: Caller) -> None:
    cluster.store.transact(identity.set_org_member, cluster.project.org_id, caller.user_id, TENANT_ADMIN)


def second_project(tx: Tx, caller: Caller, org_id: str) -> str:
    org = identity.org(tx, org_id)
    assert org is not None
    made = people.add_project(tx, org, "second", "Second")
    identity.set_member(tx, made.id, caller.user_id, "admin")
    return made.id


def test_all_that_they_have_there_ends(cluster: Cluster) -> None:
    agent = cluster.agent()
    bob, admin = member(cluster, "bob"), cluster.caller
    second = cluster.store.transact(second_project, bob, cluster.project.org_id)
    cluster.caller = bob
    ids = [cluster.launch("one", project=cluster.project.id), cluster.launch("two", project=second)]
    cluster.caller = admin
    agent.settle()
    assert [let_in(cluster, agent, id) for id in ids] == [["bob-laptop"]] * 2
    assert bob.email in emails(cluster)
    remove(cluster, bob.email)
    agent.settle()
    assert [let_in(cluster, agent, id) for id in ids] == [[], []]
    assert [cluster.allocation(id).state for id in ids] == ["active", "active"], "they run on, for the team"
    assert bob.email not in emails(cluster)
    for project in (cluster.project.id, second):
        with pytest.raises(Problem, match="project"):
            cluster.store.transact(access.in_project, bob, "project.read", project)
    (entry,) = cluster.sql("SELECT object_id, data FROM audit WHERE action = 'org_member.remove'")
    assert entry.object_id == bob.user_id
    assert (set(entry.data["projects"]), set(entry.data["machines"])) == ({cluster.project.id, second}, set(ids))
    told = cluster.sql("SELECT project_id FROM events WHERE type = 'member.remove' AND object_id = :id", id=bob.user_id)
    assert {row.project_id for row in told} == {cluster.project.id, second}
    assert refused(cluster, bob.email) == "not_found"


def test_what_they_have_in_another_organisation_stays(cluster: Cluster) -> None:
    agent = cluster.agent()
    bob, admin = member(cluster, "bob"), cluster.caller

    def other_org(tx: Tx) -> str:
        user = identity.user(tx, bob.user_id)
        assert user is not None
        org = people.add_org(tx, "other", "Other", user)
        return people.add_project(tx, org, "own", "Own").id

    project = cluster.store.transact(other_org)
    cluster.caller = bob
    id = cluster.launch("mine", project=project)
    cluster.caller = admin
    agent.settle()
    remove(cluster, bob.email)
    agent.settle()
    assert let_in(cluster, agent, id) == ["bob-laptop"]
    cluster.store.transact(access.in_project, bob, "project.read", project)


def test_the_last_administrator_stays(cluster: Cluster) -> None:
    assert refused(cluster, cluster.caller.email) == "last_administrator"
    bob = member(cluster, "bob")
    make_admin(cluster, bob)
    cluster.sql("UPDATE users SET disabled_at = now() WHERE id = :id", id=bob.user_id)
    assert refused(cluster, cluster.caller.email) == "last_administrator", "the other one cannot log in"
    cluster.sql("UPDATE users SET disabled_at = NULL")
    remove(cluster, cluster.caller.email)
    assert refused(cluster, bob.email, by=bob) == "last_administrator"


def test_of_two_administrators_who_take_each_other_out_one_stays(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    make_admin(cluster, bob)

    def attempt(pair: tuple[Caller, Caller]) -> str:
        try:
            remove(cluster, pair[1].email, by=pair[0])
        except Problem as problem:
            return problem.code
        return "done"

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(attempt, [(cluster.caller, bob), (bob, cluster.caller)]))
    assert said[0] == "done"
    assert said[1] in ("last_administrator", "not_found")
    assert len(cluster.sql("SELECT FROM org_members WHERE role = 'tenant_admin'")) == 1


def test_only_administrators_of_the_organisation(cluster: Cluster) -> None:
    bob, eve = member(cluster, "bob"), member(cluster, "eve")
    assert refused(cluster, eve.email, by=bob) == "forbidden"
    stranger = replace(bob, user_id="us-aaaaaaaaaaaaaaaa")
    assert refused(cluster, eve.email, by=stranger) == "not_found"
    assert refused(cluster, "nobody@example.org") == "not_found"


def test_no_invitation_brings_them_back(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    make_admin(cluster, bob)
    lifetime = 3600
    _, theirs = cluster.store.transact(
        invitations.invite_to_project, cluster.caller, cluster.project.id, bob.email, "admin", lifetime
    )
    _, sent = cluster.store.transact(
        invitations.invite_to_org, bob, "home", "friend@example.org", TENANT_ADMIN, lifetime
    )
    friend = cluster.store.transact(people.add_user, "friend@example.org", "Friend", None, None)
    remove(cluster, bob.email)
    for caller, secret in ((bob, theirs), (replace(bob, user_id=friend.id, email=friend.email), sent)):
        with pytest.raises(Problem) as found:
            cluster.store.transact(invitations.accept, caller, secret)
        assert found.value.code == "bad_invitation"
