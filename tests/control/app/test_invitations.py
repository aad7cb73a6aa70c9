"""Invitations: once, in time, for one address, worth what the inviter may do; nobody loses a right by accepting."""

from typing import Any

import pytest

from control.app.test_machine_access import member
from control.cluster import Cluster
from gpuaas.control.app import identity as people
from gpuaas.control.app import invitations, service_accounts, sessions, users
from gpuaas.control.store import identity, tokens
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller

WEEK = 7 * 24 * 3600
PASSWORD = "correct horse battery"


def do(cluster: Cluster, verb: Any, *arguments: Any, caller: Caller | None = None) -> Any:
    who = caller or cluster.caller
    return cluster.store.transact(verb, who, *arguments, actor=who.user_id)


def refused(cluster: Cluster, verb: Any, *arguments: Any, caller: Caller | None = None) -> str:
    with pytest.raises(Problem) as found:
        do(cluster, verb, *arguments, caller=caller)
    assert found.value.hint
    return found.value.code


def invite(cluster: Cluster, email: str = "new@example.org", role: str = "editor", caller: Caller | None = None) -> str:
    return str(do(cluster, invitations.invite_to_project, "lab", email, role, WEEK, caller=caller)[1])


def sign_up(cluster: Cluster, secret: str) -> Caller:
    hashed = sessions.hash_password(PASSWORD)
    _, shown = cluster.store.transact(invitations.signup, secret, "New", hashed, "192.0.2.7")
    found = cluster.store.transact(tokens.caller, shown)
    assert found is not None
    return found


def cannot_sign_up(cluster: Cluster, secret: str) -> str:
    with pytest.raises(Problem) as found:
        cluster.store.transact(invitations.signup, secret, "New", "x", "192.0.2.7")
    return found.value.code


def somebody(cluster: Cluster, email: str) -> Caller:
    user = cluster.store.transact(people.add_user, email, email, None, None)
    return Caller(user.id, user.email, user.name, None, "tk-test", ("*",))


def test_somebody_new_joins_once(cluster: Cluster) -> None:
    secret = invite(cluster)
    assert [item.email for item in do(cluster, invitations.list_for_project, "lab")] == ["new@example.org"]
    new = sign_up(cluster, secret)
    assert new.email == "new@example.org"
    assert [(project.slug, role) for project, role in do(cluster, people.list_projects, caller=new)] == [
        ("lab", "editor")
    ]
    found = cluster.store.transact(sessions.password_of, new.email)
    assert sessions.check_password(found, PASSWORD).id == new.user_id
    assert cannot_sign_up(cluster, secret) == "bad_invitation"
    assert do(cluster, invitations.list_for_project, "lab") == []
    entries = cluster.sql("SELECT action, actor FROM audit WHERE actor = :id", id=new.user_id)
    assert [entry.action for entry in entries] == ["invitation.accept"]
    (row,) = cluster.sql("SELECT email_proven FROM users WHERE id = :id", id=new.user_id)
    assert row.email_proven is False


def test_somebody_who_has_an_account_accepts_as_themselves(cluster: Cluster) -> None:
    ada, eve = somebody(cluster, "ada@example.org"), somebody(cluster, "eve@example.org")
    secret = invite(cluster, "Ada@Example.org")
    assert refused(cluster, invitations.accept, secret, caller=eve) == "other_address"
    assert cannot_sign_up(cluster, secret) == "user_exists"
    do(cluster, invitations.accept, secret, caller=ada)
    assert do(cluster, people.list_projects, caller=ada)[0][1] == "editor"
    assert refused(cluster, invitations.accept, secret, caller=ada) == "bad_invitation"


def test_into_an_org(cluster: Cluster) -> None:
    ada = somebody(cluster, "ada@example.org")
    _, secret = do(cluster, invitations.invite_to_org, "home", ada.email, "tenant_admin", WEEK)
    do(cluster, invitations.accept, secret, caller=ada)
    assert cluster.store.transact(identity.org_role, cluster.project.org_id, ada.user_id) == "tenant_admin"
    assert do(cluster, people.list_projects, caller=ada)[0][1] == "admin"


def test_accepting_takes_no_right_away(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    do(cluster, people.set_member, "lab", bob.user_id, "admin")
    do(cluster, invitations.accept, invite(cluster, bob.email, "viewer"), caller=bob)
    assert do(cluster, people.list_projects, caller=bob)[0][1] == "admin"


def test_it_ends_by_time_by_hand_and_by_a_newer_one(cluster: Cluster) -> None:
    old, secret = invite(cluster), invite(cluster)
    assert cannot_sign_up(cluster, old) == "bad_invitation"
    (found,) = do(cluster, invitations.list_for_project, "lab")
    do(cluster, invitations.revoke_for_project, "lab", found.id)
    assert cannot_sign_up(cluster, secret) == "bad_invitation"
    assert refused(cluster, invitations.revoke_for_project, "lab", found.id) == "not_found"
    late = invite(cluster)
    cluster.sql("UPDATE invitations SET expires_at = now() - interval '1 second'")
    assert cannot_sign_up(cluster, late) == "bad_invitation"
    assert do(cluster, invitations.list_for_project, "lab") == []
    assert cannot_sign_up(cluster, "gpi_" + "x" * 43) == "bad_invitation"


@pytest.mark.parametrize("change", ["disabled", "demoted", "removed"])
def test_it_is_worth_what_the_inviter_may_do_now(cluster: Cluster, change: str) -> None:
    bob = member(cluster, "bob")
    do(cluster, people.set_member, "lab", bob.user_id, "admin")
    secret = invite(cluster, caller=bob)
    if change == "disabled":
        do(cluster, users.disable, bob.user_id, bob.email, "test")
    elif change == "demoted":
        do(cluster, people.set_member, "lab", bob.user_id, "editor")
    else:
        do(cluster, people.remove_member, "lab", bob.user_id)
    assert cannot_sign_up(cluster, secret) == "bad_invitation"


def test_who_may_invite_whom(cluster: Cluster) -> None:
    bob = member(cluster, "bob")
    arguments = ("lab", "x@example.org", "viewer", WEEK)
    assert refused(cluster, invitations.invite_to_project, *arguments, caller=bob) == "forbidden"
    org = ("home", "x@example.org", "tenant_admin", WEEK)
    assert refused(cluster, invitations.invite_to_org, *org, caller=bob) == "forbidden"
    assert refused(cluster, invitations.invite_to_project, "lab", "a@b.service", "viewer", WEEK) == "invalid_request"
    do(cluster, service_accounts.create, "lab", "ci", "viewer")
    (row,) = cluster.sql("SELECT id, email, name FROM users WHERE kind = 'service'")
    robot = Caller(row.id, row.email, row.name, None, "tk-test", ("*",), "service")
    assert refused(cluster, invitations.accept, invite(cluster), caller=robot) == "other_address"
    assert "gpi_" not in str(cluster.sql("SELECT * FROM invitations"))
