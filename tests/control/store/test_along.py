"""What is asked together with who is asking: never more than they see, and only for the same question."""

from collections.abc import Callable
from typing import Any

import pytest

from control.cluster import Cluster
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import break_glass, sessions
from gpuaas.control.app import identity as people
from gpuaas.control.store import surroundings, tokens
from gpuaas.control.store.exchange import Answer
from gpuaas.control.store.transaction import Along, Tx
from gpuaas.model.identity import Caller

PAGE = surroundings.page_along(True, None, 10)


class Counted:
    """The statements of one look."""

    def __init__(self, cluster: Cluster, secret: str, along: Along | None) -> None:
        self._cluster, self._secret, self._along = cluster, secret, along
        self.statements = 0

    def __call__(self, verb: Callable[..., Any], *arguments: Any) -> Any:
        def work(tx: Tx) -> Any:
            send = tx._send

            def counted(*asked: Any) -> list[Answer]:
                self.statements += len(asked)
                return send(*asked)

            tx._send = counted  # type: ignore[method-assign]
            tx.along = self._along
            return verb(tx, sessions.authenticate(tx, self._secret), *arguments)

        self.statements = 0
        return self._cluster.store.look(work)


def secret_of(cluster: Cluster, user_id: str) -> str:
    def work(tx: Tx) -> str:
        _, secret = tokens.insert_token(tx, user_id, "test", ("*",), tx.now.replace(year=2100))
        tokens.caller(tx, secret)  # used in this minute already
        return secret

    return cluster.store.transact(work)


def somebody(cluster: Cluster, name: str, *, platform_role: str | None = None) -> Caller:
    user = cluster.store.transact(people.add_user, f"{name}@example.org", name, None, platform_role)
    return Caller(user.id, user.email, user.name, platform_role, "tk-test", ("*",))


def named(found: list[surroundings.Shown]) -> list[str]:
    return [shown.item.name for shown in found]


@pytest.fixture
def editor(cluster: Cluster) -> str:
    bob = somebody(cluster, "bob")
    cluster.store.transact(people.set_member, cluster.caller, "lab", bob.email, "editor")
    return secret_of(cluster, bob.user_id)


def test_one_statement_and_the_same_answer(cluster: Cluster, editor: str) -> None:
    ids = [cluster.launch(name, wait=True) for name in ("a", "b", "c")]
    apart, together = Counted(cluster, editor, None), Counted(cluster, editor, PAGE)
    page = (verbs.list_shown, None, True, None, 10)
    apart(*page)
    assert apart.statements == 3, "who asks, what is there, and what it is"
    assert together(*page) == apart(*page)
    assert (apart.statements, together.statements) == (2, 1), "what it is was known"
    assert named(together(*page)) == ["c", "b", "a"], "newest first"
    for name in ("b", ids[1]):
        found = Counted(cluster, editor, surroundings.find_along(name))
        assert found(verbs.shown, name) == apart(verbs.shown, name)
        assert found.statements == 1


def test_another_question_is_asked_again(cluster: Cluster, editor: str) -> None:
    for name in ("a", "b"):
        cluster.launch(name, wait=True)
    look = Counted(cluster, editor, surroundings.page_along(True, None, 1))
    assert named(look(verbs.list_shown, None, True, None, 10)) == ["b", "a"]
    assert look(verbs.shown, "a").item.name == "a"
    assert look.statements == 2


def test_nobody_sees_what_is_not_theirs(cluster: Cluster) -> None:
    cluster.launch("a", wait=True)
    stranger = Counted(cluster, secret_of(cluster, somebody(cluster, "eve").user_id), PAGE)
    assert stranger(verbs.list_shown, None, True, None, 10) == []
    assert stranger.statements == 1


def test_an_operator_who_has_broken_the_glass_sees_more_than_came_along(cluster: Cluster) -> None:
    cluster.launch("a", wait=True)
    ops = somebody(cluster, "ops", platform_role="platform_ops")
    look = Counted(cluster, secret_of(cluster, ops.user_id), PAGE)
    assert look(verbs.list_shown, None, True, None, 10) == []
    cluster.store.transact(break_glass.open_, ops, "home", "INC-42: floods the network", 3600, actor=ops.user_id)
    assert named(look(verbs.list_shown, None, True, None, 10)) == ["a"]


CHANGES = (
    "UPDATE allocations SET host_key = 'another' WHERE id = %(id)s",
    "INSERT INTO leases (allocation_id, max_seconds) VALUES (%(id)s, 600)",
    "UPDATE leases SET ends_at = now() WHERE allocation_id = %(id)s",
    "INSERT INTO lease_policies (project_id, idle_gpu_percent) SELECT project_id, 5 FROM allocations WHERE id = %(id)s",
    "UPDATE lease_policies SET idle_seconds = 60",
    "UPDATE offers SET slug = 'renamed' WHERE id = (SELECT offer_id FROM allocations WHERE id = %(id)s)",
    "INSERT INTO preemptions (allocation_id, wanted_by, warned_at, due_at) VALUES (%(id)s, 'gr-1', now(), now())",
    "INSERT INTO drains (target_id, node_id, reason, created_by, created_at, deadline) SELECT node_id, node_id, 'fans',"
    " owner_id, now(), now() + interval '2 hours' FROM allocations WHERE id = %(id)s",
    "INSERT INTO drains (target_id, node_id, slot_id, reason, created_by, created_at, deadline) SELECT slot_id,"
    " node_id, slot_id, 'fans', owner_id, now(), now() FROM allocations a"
    " JOIN claims ON allocation_id = a.id WHERE a.id = %(id)s",
    "UPDATE nodes SET inventory = jsonb_set(inventory, '{address}', '\"192.0.2.99\"')",
)


def test_what_has_changed_is_asked_again_and_nothing_else(cluster: Cluster, editor: str) -> None:
    cluster.agent()
    machine = cluster.launch("a")
    page = (verbs.list_shown, None, True, None, 10)
    look = Counted(cluster, editor, PAGE)
    for change in ("SELECT %(id)s::text", *CHANGES):
        before = look(*page)
        cluster.store.transact(lambda tx, change=change: tx.run(change, {"id": machine}))
        after = look(*page)
        there = cluster.store.transact(surroundings.page, [cluster.project.id], True, None, 10)
        assert after == there
        assert (after != before, look.statements) == ((True, 2) if change in CHANGES else (False, 1)), change


def test_no_more_is_remembered_than_is_good_for_the_servers_memory(cluster: Cluster, editor: str) -> None:
    names = [f"machine-{n}" for n in range(3)]
    for name in names:
        cluster.launch(name, wait=True)
    look = Counted(cluster, editor, PAGE)

    def crowded(tx: Tx) -> dict[Any, Any]:
        kept: dict[Any, Any] = tx.connection.info.setdefault("shown", {})
        kept.update({("al-gone", n): None for n in range(surroundings.KEPT - 2)})
        return kept

    kept = cluster.store.look(crowded)
    assert named(look(verbs.list_shown, None, True, None, 10)) == names[::-1]
    assert len(kept) == len(names)
