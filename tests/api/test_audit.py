"""The audit log: one entry per mutation, in the right chain, and nothing in it can be changed without being found."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import TextClause, text

from api.fill import OWN, ask, fill
from api.routes import Route, routes
from api.test_inputs import who
from api.world import World
from gpuaas.control.store import events, identity, tables
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.model.permission import PERMISSIONS

# What operators and newcomers do to one tenant is in that tenant's chain, where it is looked for.
ABOUT_A_TENANT = {
    *("break_glass.open", "invitation.accept", "invitation.signup"),
    *("org.domains", "org_quota.write", "usage.correct"),
}
MUTATING = [route for route in routes() if route.mutates]
Row = dict[str, Any]


def entries(world: World) -> dict[tuple[str, int], Row]:
    def work(tx: Tx) -> dict[tuple[str, int], Row]:
        return {(row.org_id, row.seq): dict(row._mapping) for row in tx.conn.execute(text("SELECT * FROM audit"))}

    return world.store.transact(work)


@pytest.mark.parametrize("route", MUTATING, ids=str)
def test_every_mutation_leaves_exactly_one_entry(world: World, http: httpx.Client, route: Route) -> None:
    person = who(world, route)
    request = fill(world, route, person, OWN)
    assert request is not None
    before = entries(world)
    request.headers["X-Correlation-ID"] = f"audited.{route.method}"
    answer = ask(http, person, request)
    assert answer.status_code == route.success, answer.text
    new = [row for key, row in entries(world).items() if key not in before]
    assert len(new) == 1, f"{len(new)} entries"
    (entry,) = new
    assert entry["correlation_id"] == f"audited.{route.method}"
    platform = world.store.transact(identity.platform_org_id)
    scope = PERMISSIONS[route.action].scope
    if scope in ("project", "org"):
        assert entry["org_id"] == world.own.project.org_id
    elif route.action in ABOUT_A_TENANT:
        assert entry["org_id"] != platform
    elif route.action == "org.write":
        assert entry["org_id"] == answer.json()["id"]  # the first entry of the new org's own chain
    else:
        assert entry["org_id"] == platform
    if scope != "public":
        assert entry["actor"] == person.id
    assert entry["actor"].startswith("us-")
    assert request.subject is None or request.subject in str(entry)


def test_what_is_refused_leaves_none(world: World, http: httpx.Client) -> None:
    before = entries(world)
    for route in MUTATING:
        if PERMISSIONS[route.action].scope == "public":
            continue
        request = fill(world, route, world.people["garbage"], OWN)
        assert request is not None
        assert ask(http, world.people["garbage"], request).status_code == 401
        if PERMISSIONS[route.action].scope != "self":
            assert ask(http, world.people["viewer"], request).status_code == 403
    after = {key: row for key, row in entries(world).items() if row["action"] not in ("key.add", "key.remove")}
    # What a request is about is booked for it, by nobody who asked.
    booked = {key for key, row in after.items() if (row["action"], row["actor"]) == ("reservation.book", "system")}
    assert set(after) - booked <= set(before)


def test_the_chain_is_intact_and_shown(world: World, http: httpx.Client) -> None:
    for path, name in (("/api/v1/audit", "tenant_admin"), ("/api/v1/platform/audit", "platform_admin")):
        headers = world.people[name].headers
        verdict = http.get(f"{path}/verify", headers=headers).json()
        assert verdict["intact"]
        assert verdict["problem"] is None
        shown = http.get(path, params={"limit": 500}, headers=headers).json()["items"]
        assert [item["seq"] for item in shown] == list(range(1, verdict["entries"] + 1))


@pytest.fixture(scope="module")
def chain(world: World) -> tuple[Store, str, int]:
    """A store, an org with a chain, and the number of an entry in its middle."""
    org_id = world.own.project.org_id
    count, problem = world.store.transact(events.verify_audit, org_id)
    assert problem is None
    assert count > 10
    return world.store, org_id, count // 2


def verified(store: Store, org_id: str, spoil: Callable[[Tx], object]) -> str | None:
    """What verify says after `spoil`, which is taken back."""

    def work(tx: Tx) -> str | None:
        take_back = tx.attempt()
        spoil(tx)
        found = events.verify_audit(tx, org_id)[1]
        take_back()
        return found

    return store.transact(work)


def execute(statement: TextClause, tx: Tx) -> None:
    tx.conn.execute(statement)


COLUMNS = [column.name for column in tables.audit.columns if column.name not in ("org_id", "seq")]
OTHER = {
    "at": "at + interval '1 microsecond'",
    "data": "data || '{\"x\": 1}'::jsonb",
    "hash": "sha256(hash)",
    "operating_mode": "'tenant_dedicated', control_plane_scope = 'project', tenant_boundary_mode = 'tenant_isolated'",
    "control_plane_scope": "'tenant'",
    "tenant_boundary_mode": "'shared_service'",
    "runtime_backend": "'ray'",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_an_altered_entry_is_named(chain: tuple[Store, str, int], column: str) -> None:
    store, org_id, seq = chain
    value = OTHER.get(column, f"coalesce({column}, '') || 'x'")
    change = text(f"UPDATE audit SET {column} = {value} WHERE org_id = :org AND seq = :seq")

    def spoil(tx: Tx) -> None:
        assert tx.conn.execute(change, {"org": org_id, "seq": seq}).rowcount == 1

    said = verified(store, org_id, spoil)
    assert said is not None
    assert f"entry {seq} " in said
    assert "altered" in said


def test_a_deleted_entry_is_named(chain: tuple[Store, str, int]) -> None:
    store, org_id, seq = chain
    for number in (1, seq):
        gone = text(f"DELETE FROM audit WHERE org_id = '{org_id}' AND seq = {number}")
        said = verified(store, org_id, partial(execute, gone))
        assert said == f"entry {number} is missing"


def test_a_cut_tail_is_found(chain: tuple[Store, str, int]) -> None:
    store, org_id, seq = chain
    tail = text("DELETE FROM audit WHERE org_id = :org AND seq > :seq")
    said = verified(store, org_id, lambda tx: tx.conn.execute(tail, {"org": org_id, "seq": seq}))
    assert said is not None
    assert f"ends at entry {seq}" in said


def test_swapped_and_inserted_entries_are_found(chain: tuple[Store, str, int]) -> None:
    store, org_id, seq = chain
    one, two = {"org": org_id, "a": seq, "b": -1}, {"org": org_id, "a": seq + 1, "b": seq}
    three = {"org": org_id, "a": -1, "b": seq + 1}
    move = text("UPDATE audit SET seq = :b WHERE org_id = :org AND seq = :a")

    def swap(tx: Tx) -> None:
        for step in (one, two, three):
            tx.conn.execute(move, step)

    said = verified(store, org_id, swap)
    assert said is not None
    assert f"entry {seq} " in said
    extra = text(
        "INSERT INTO audit (org_id, seq, actor, action, object_kind, object_id, data, at, hash) "
        "SELECT org_id, (SELECT max(seq) + 1 FROM audit WHERE org_id = :org), actor, action, object_kind, object_id, "
        "data, at, hash FROM audit WHERE org_id = :org AND seq = :seq"
    )
    assert verified(store, org_id, lambda tx: tx.conn.execute(extra, {"org": org_id, "seq": seq})) is not None


def test_a_chain_cannot_be_moved_to_another_org(chain: tuple[Store, str, int], world: World) -> None:
    store, org_id, _ = chain
    other = world.foreign.project.org_id
    move = text("UPDATE audit SET org_id = :other WHERE org_id = :org")

    def spoil(tx: Tx) -> None:
        tx.conn.execute(text("DELETE FROM audit WHERE org_id = :other"), {"other": other})
        tx.conn.execute(move, {"org": org_id, "other": other})

    assert verified(store, other, spoil) is not None


def test_a_chain_that_grows_meanwhile_is_intact(world: World, http: httpx.Client) -> None:
    """Verifying is no false alarm while others work."""
    editor, admin = world.people["editor"], world.people["tenant_admin"]
    done = threading.Event()

    def work() -> None:
        plan = {"offer": "b200-1", "wait": True, "project": world.own.project.id}
        for number in range(60):
            http.post("/api/v1/allocations", json={**plan, "name": f"grow-{number}"}, headers=editor.headers)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        verdict = http.get("/api/v1/audit/verify", headers=admin.headers).json()
        assert verdict["intact"], verdict
    thread.join()
