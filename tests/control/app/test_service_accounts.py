"""Service accounts: one project, one role, no password; and that nothing of theirs survives them."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy.exc import IntegrityError

from control.cluster import Cluster
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.app import keys, machine_access, service_accounts, sessions, users
from gpuaas.control.store import tokens
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.permission import PERMISSIONS
from gpuaas.wire.api import Launch

LAB = "lab"


def line() -> str:
    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def do(cluster: Cluster, verb: Any, *arguments: Any, caller: Caller | None = None) -> Any:
    return cluster.store.transact(verb, caller or cluster.caller, *arguments)


def refused(cluster: Cluster, verb: Any, *arguments: Any, caller: Caller | None = None) -> str:
    with pytest.raises(Problem) as found:
        do(cluster, verb, *arguments, caller=caller)
    assert found.value.hint
    return found.value.code


def account(cluster: Cluster, name: str = "ci", role: str = "editor", *scopes: str) -> Caller:
    """With a key, and as whoever holds a token of it."""
    do(cluster, service_accounts.create, LAB, name, role)
    do(cluster, service_accounts.add_key, LAB, name, "deploy", line())
    wanted = (LAB, name, "pipeline", list(scopes) or ["*"], 3600, "192.0.2.7")
    _, secret = do(cluster, service_accounts.create_token, *wanted)
    found = cluster.store.transact(tokens.caller, secret)
    assert found is not None
    return found


def test_it_works_in_its_project_and_is_recognised_everywhere(cluster: Cluster) -> None:
    agent = cluster.agent()
    ci = account(cluster)
    assert (ci.user_id[:3], ci.email, ci.kind) == ("sa-", "ci@lab.home.service", "service")
    started, _ = cluster.store.transact(verbs.launch, ci, Launch("built", "h100-1"), actor=ci.user_id)
    id = started[0][0].id
    agent.settle()
    body = agent.specs[id].body
    assert body is not None
    assert [key.user_id for key in body.keys] == [ci.user_id]
    assert do(cluster, machine_access.list_keys, id)[1].email == ci.email
    (entry,) = cluster.sql("SELECT actor FROM audit WHERE action = 'allocation.launch'")
    assert entry.actor == ci.user_id
    (member,) = [item for item in do(cluster, people.list_members, LAB) if item.user_id == ci.user_id]
    assert (member.kind, member.role) == ("service", "editor")


def test_its_role_and_its_project_are_all_it_has(cluster: Cluster) -> None:
    cluster.agent()
    viewer = account(cluster, "watcher", "viewer")
    assert refused(cluster, verbs.launch, Launch("x", "h100-1"), caller=viewer) == "forbidden"
    do(cluster, people.create_project, "side", "Side", None)
    editor = account(cluster)
    assert refused(cluster, people.set_member, "side", editor.user_id, "viewer") == "not_found"
    assert refused(cluster, people.list_members, "side", caller=editor) == "not_found"
    assert refused(cluster, people.create_project, "mine", "Mine", None, caller=editor) == "not_found"
    assert refused(cluster, people.create_org, "own", "Own", editor.user_id) == "not_found"
    org_and_platform = [action for action, found in PERMISSIONS.items() if found.scope in ("org", "platform")]
    assert org_and_platform
    assert cluster.sql("SELECT 1 FROM org_members WHERE user_id = :id", id=editor.user_id) == []
    assert refused(cluster, people.remove_member, LAB, editor.email) == "service_account"


def test_it_never_logs_in(cluster: Cluster) -> None:
    ci = account(cluster)
    with pytest.raises(Problem) as found:
        sessions.check_password(cluster.store.transact(sessions.password_of, ci.email), "nobody has this password")
    assert found.value.code == "wrong_credentials"
    for change in ("password_hash = 'x'", "platform_role = 'platform_admin'", "project_id = NULL"):
        with pytest.raises(IntegrityError):
            cluster.sql(f"UPDATE users SET {change} WHERE id = :id", id=ci.user_id)
    assert refused(cluster, users.create_user, "eve@lab.home.service", "Eve", None, None) == "invalid_request"


def test_a_token_is_bounded_and_does_not_renew_itself(cluster: Cluster) -> None:
    ci = account(cluster, "ci", "editor", "allocation.read", "token.*")
    assert ci.scopes == ("allocation.read", "token.*")
    assert refused(cluster, verbs.launch, Launch("x", "h100-1"), caller=ci) == "token_scope"
    assert refused(cluster, sessions.create_token, "more", ["allocation.read"], 3600, caller=ci) == "service_account"
    narrow = Caller(**{**cluster.caller.__dict__, "scopes": ("service_account.*",)})
    wanted = (LAB, "ci", "wide", ["*"], 3600, "")
    assert refused(cluster, service_accounts.create_token, *wanted, caller=narrow) == "token_scope"
    wanted = (LAB, "ci", "odd", ["no.such"], 3600, "")
    assert refused(cluster, service_accounts.create_token, *wanted) == "invalid_request"


def test_deleted_it_leaves_nothing_open(cluster: Cluster) -> None:
    agent = cluster.agent()
    ci = account(cluster)
    started, _ = do(cluster, verbs.launch, Launch("built", "h100-1"), caller=ci)
    id = started[0][0].id
    agent.settle()
    assert do(cluster, service_accounts.remove, LAB, "ci") == ["built"]
    agent.settle()
    body = agent.specs[id].body
    assert body is not None
    assert body.keys == []
    assert cluster.allocation(id).state == "active", "the machine runs on, for the project to release"
    valid = "SELECT 1 FROM tokens WHERE user_id = :id AND revoked_at IS NULL"
    assert cluster.sql(valid, id=ci.user_id) == []
    assert cluster.sql("SELECT 1 FROM ssh_keys WHERE user_id = :id", id=ci.user_id) == []
    assert do(cluster, service_accounts.list_accounts, LAB) == []
    assert refused(cluster, service_accounts.create_token, LAB, ci.user_id, "t", ["*"], 60, "") == "not_found"
    assert refused(cluster, users.enable, ci.user_id) == "deleted"
    assert account(cluster).user_id != ci.user_id, "its name is free again, and means somebody else"
    cluster.release(id)


def test_an_operator_can_stop_one(cluster: Cluster) -> None:
    ci = account(cluster)
    do(cluster, users.disable, ci.user_id, ci.email, "runs wild")
    assert refused(cluster, keys.add_key, "k", "ssh-ed25519 AAAA", caller=ci)  # whatever it sends is not a key
    assert [item.disabled_at is None for item, _ in do(cluster, service_accounts.list_accounts, LAB)] == [False]
    assert do(cluster, users.enable, ci.user_id).disabled_at is None
