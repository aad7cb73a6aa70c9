"""The schema: migrations and tables say the same, run any number of times, and refuse what must never be."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg import sql
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import IntegrityError

import databases
from control.cluster import Cluster
from gpuaas.control.store import migrate
from gpuaas.control.store.embedded import ROLE, Embedded
from gpuaas.control.store.tables import metadata
from gpuaas.model import lifecycle

UNIQUE, CHECK = "23505", "23514"
FOREIGN_KEY = "23503"
STAYS = "23001"  # what history points at


@pytest.fixture
def empty_database_url(postgres: Embedded) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:16]}"
    libpq = make_url(postgres.admin_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as connection:
        statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(ROLE))
        connection.execute(statement)
    yield databases.url_of(postgres.admin_url, name)
    databases.drop(postgres.admin_url, name)


def version(url: str) -> str | None:
    engine = create_engine(url)
    with engine.connect() as conn:
        found = migrate.current(conn)
    engine.dispose()
    return found


def test_migrations_and_tables_say_the_same(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn), metadata) == []
    engine.dispose()


def test_checks_in_the_database_are_those_of_the_tables(database_url: str) -> None:
    """Alembic does not compare CHECKs, and the states are written into them."""
    engine = create_engine(database_url)
    with engine.connect() as conn:
        ours = "contype = 'c' AND connamespace = 'public'::regnamespace"
        rows = conn.execute(text(f"SELECT conname, pg_get_constraintdef(oid) AS said FROM pg_constraint WHERE {ours}"))
        found = {row.conname: row.said for row in rows}
    engine.dispose()
    named = {
        str(constraint.name)
        for table in metadata.tables.values()
        for constraint in table.constraints
        if type(constraint).__name__ == "CheckConstraint"
    }
    assert set(found) == named
    for table, cycle in {
        "allocations": lifecycle.ALLOCATION,
        "operations": lifecycle.OPERATION,
        "nodes": lifecycle.NODE,
        "slots": lifecycle.SLOT,
        "claims": lifecycle.CLAIM,
    }.items():
        said = found[f"ck_{table}_state_known"]
        assert all(f"'{state}'" in said for state in cycle.states), table
        assert said.count("'::text") == len(cycle.states), table


def test_migrating_again_changes_nothing(database_url: str) -> None:
    assert version(database_url) == migrate.head()
    migrate.upgrade(database_url)
    assert version(database_url) == migrate.head()


def test_several_servers_may_migrate_at_once(empty_database_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate.upgrade, [empty_database_url] * 4))
    assert version(empty_database_url) == migrate.head()


@pytest.fixture
def machine(cluster: Cluster) -> dict[str, Any]:
    """One active allocation, and everything a row needs to point at."""
    agent = cluster.agent(gpus=2)
    id = cluster.launch()
    agent.settle()
    used, free = sorted(cluster.slots(agent), key=lambda slot: slot.id not in agent.specs[id].body.slots[0].id)  # type: ignore[union-attr]
    return {"cluster": cluster, "id": id, "node": agent.node_id, "used": used.id, "free": free.id}


COPY = (
    "INSERT INTO allocations (id, org_id, project_id, name, offer_id, owner_id, group_id, state, node_id, seat,"
    " incarnation, generation, key_ids, created_at) SELECT 'al-copy', org_id, project_id, {name}, offer_id, owner_id,"
    " group_id, {state}, {node}, {seat}, 1, 1, key_ids, now() FROM allocations"
)
CLAIM = (
    "INSERT INTO claims (id, slot_id, allocation_id, state, created_at, freed_at)"
    " VALUES ('cl-x', '{slot}', '{id}', '{state}', now(), {freed})"
)
OPERATION = (
    "INSERT INTO operations (id, kind, facet, org_id, project_id, allocation_id, state, generation, phases, created_by,"
    " created_at, finished_at) SELECT {id}, kind, facet, org_id, project_id, allocation_id, {state}, 1, '[]', 'x',"
    " now(), {finished} FROM operations LIMIT 1"
)
REFUSED = {
    "two live claims on one slot (I1)": CLAIM.format(slot="{used}", id="{id}", state="held", freed="NULL"),
    "a scrubbing claim beside a held one": CLAIM.format(slot="{used}", id="{id}", state="scrubbing", freed="NULL"),
    "one GPU in two slots (I1)": "INSERT INTO slot_gpus (gpu, slot_id) VALUES ('GPU-node-1-0', '{free}')",
    "freed without a time": CLAIM.format(slot="{free}", id="{id}", state="freed", freed="NULL"),
    "held with a time": CLAIM.format(slot="{free}", id="{id}", state="held", freed="now()"),
    "two live machines of one name": COPY.format(name="name", state="'queued'", node="NULL", seat="NULL"),
    "one seat twice": COPY.format(name="'b'", state="'active'", node="node_id", seat="seat"),
    "a seat without a node": COPY.format(name="'b'", state="'queued'", node="NULL", seat="7"),
    "active without a node": COPY.format(name="'b'", state="'active'", node="NULL", seat="NULL"),
    "an unknown state": COPY.format(name="'b'", state="'melting'", node="NULL", seat="NULL"),
    "unreachable without a past": "UPDATE allocations SET state = 'unreachable'",
    "a past without being unreachable": "UPDATE allocations SET previous_state = 'active'",
    "answered for more than was asked": "UPDATE allocations SET observed = generation + 1",
    "two open operations of one facet": OPERATION.format(id="'op-x'", state="'running'", finished="NULL")
    + "; "
    + OPERATION.format(id="'op-y'", state="'running'", finished="NULL"),
    "ended without a time": OPERATION.format(id="'op-x'", state="'failed'", finished="NULL"),
    "running with an end": OPERATION.format(id="'op-x'", state="'running'", finished="now()"),
    "usage that runs backwards": "UPDATE usage SET ended_at = started_at - interval '1 second'",
    "two open usage intervals (I6)": "INSERT INTO usage"
    " (id, org_id, project_id, resource_id, component, shape, started_at)"
    " SELECT 'ug-x', org_id, project_id, resource_id, component, shape, now() FROM usage",
    "an unknown operating mode": "UPDATE events SET operating_mode = 'tenant_dedicated',"
    " control_plane_scope = 'platform', tenant_boundary_mode = 'tenant_isolated'",
    "an unknown backend": "UPDATE audit SET runtime_backend = 'cobol'",
    "two revisions of one number": "INSERT INTO specs SELECT node_id, 'al-x', 1, 1, revision, body, good FROM specs",
    "an address in capitals": "UPDATE users SET email = 'Root@example.org'",
    "an unknown role": "UPDATE org_members SET role = 'emperor'",
    "a second store": "INSERT INTO store (single, id, fingerprint) VALUES (false, 'st-x', 'x')",
    **{
        f"a row of {table} that history may point at is deleted": f"DELETE FROM {table}"
        for table in ("orgs", "projects", "users", "offers", "nodes", "slots", "allocations")
    },
    "the same event number twice": "INSERT INTO events"
    " (project_id, seq, org_id, type, object_kind, object_id, actor, data, at)"
    " SELECT project_id, seq, org_id, type, object_kind, object_id, actor, data, at FROM events",
}


@pytest.mark.parametrize("why", REFUSED)
def test_the_database_refuses(machine: dict[str, Any], why: str) -> None:
    cluster = machine.pop("cluster")
    with pytest.raises(IntegrityError) as refused:
        cluster.sql(REFUSED[why].format(**machine))
    assert refused.value.orig.sqlstate in (UNIQUE, CHECK, FOREIGN_KEY, STAYS), "refused, but for another reason"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO slot_gpus (gpu, slot_id, card, cut) VALUES ('MIG-1', '{free}', 'GPU-node-1-0', true)",
        "UPDATE cards SET cut = true",
        "DELETE FROM cards",
    ],
)
def test_a_gpu_that_is_whole_in_a_slot_is_in_none_in_parts(machine: dict[str, Any], statement: str) -> None:
    cluster = machine.pop("cluster")
    with pytest.raises(IntegrityError) as refused:
        cluster.sql(statement.format(**machine))
    assert refused.value.orig.sqlstate == FOREIGN_KEY  # type: ignore[union-attr]
