"""A launch: whose project it finds and by which name, and in how few round trips it is done."""

from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from control.cluster import Cluster
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.app import keys, quotas
from gpuaas.control.store import events
from gpuaas.control.store.exchange import Answer, Asked, Exchange
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.quota import ALLOCATIONS
from gpuaas.wire.api import Launch


class Counting(Exchange):
    """Round trips, each with its statements."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.trips: list[list[str]] = []

    def __call__(self, *asked: Asked, hint: Asked | None = None) -> list[Answer]:
        self.trips.append([" ".join(statement.split()) for statement, _ in asked])
        return super().__call__(*asked, hint=hint)


@pytest.fixture
def store(cluster: Cluster, database_url: str) -> Iterator[Store]:
    """Of one connection."""
    made = Store(connect(database_url, pool_size=1))
    yield made
    made.engine.dispose()


def counting(store: Store) -> Counting:
    with store.engine.connect() as connection:
        made: Counting = connection.info.setdefault("exchange", Counting(connection.connection.driver_connection))
    return made


def person(cluster: Cluster, name: str, role: str | None) -> Caller:
    """With a key; in the project, if there is a role."""

    def work(tx: Tx) -> Caller:
        user = people.add_user(tx, f"{name}@example.org", name, None, None)
        if role:
            people.set_member(tx, cluster.caller, cluster.project.id, user.id, role)
        return Caller(user.id, user.email, user.name, None, "tk-test", ("*",))

    made = cluster.store.transact(work)
    public = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    cluster.store.transact(keys.add_key, made, "laptop", public.decode())
    return made


def launched(store: Store, caller: Caller, name: str, project: str | None) -> str:
    started, _ = store.transact(verbs.launch, caller, Launch(name, "h100-1", project=project), actor=caller.user_id)
    return started[0][0].project_id


def refused(store: Store, caller: Caller, project: str | None) -> str:
    with pytest.raises(Problem) as problem:
        launched(store, caller, "x", project)
    return problem.value.code


def test_the_project_is_found_by_its_id_its_slug_or_because_there_is_no_other(cluster: Cluster) -> None:
    cluster.agent(gpus=4)
    caller = person(cluster, "ann", "editor")
    for number, name in enumerate((cluster.project.id, cluster.project.slug, None)):
        assert launched(cluster.store, caller, f"m{number}", name) == cluster.project.id
    assert launched(cluster.store, cluster.caller, "operator", cluster.project.id) == cluster.project.id


def test_a_slug_that_looks_like_an_id_is_a_slug(cluster: Cluster) -> None:
    cluster.agent()
    caller = person(cluster, "ann", "editor")
    cluster.sql("UPDATE projects SET slug = 'pj-aaaaaaaaaaaaaaaa' WHERE id = :id", id=cluster.project.id)
    assert launched(cluster.store, caller, "a", "pj-aaaaaaaaaaaaaaaa") == cluster.project.id


def test_who_is_not_in_the_project_is_told_what_they_would_be_told_of_one_that_is_not_there(cluster: Cluster) -> None:
    cluster.agent()
    stranger, viewer = person(cluster, "eve", None), person(cluster, "bob", "viewer")
    for name in (cluster.project.id, cluster.project.slug, "pj-aaaaaaaaaaaaaaaa", None):
        assert refused(cluster.store, stranger, name) == "not_found"
    assert refused(cluster.store, viewer, cluster.project.id) == "forbidden"
    assert refused(cluster.store, viewer, cluster.project.slug) == "forbidden"


def test_who_was_disabled_in_this_moment_launches_nothing(cluster: Cluster) -> None:
    cluster.agent()
    caller = person(cluster, "ann", "editor")
    cluster.sql("UPDATE users SET disabled_at = now() WHERE id = :id", id=caller.user_id)
    assert refused(cluster.store, caller, cluster.project.id) == "not_found"


def test_who_is_not_in_the_project_does_not_hold_its_quotas(cluster: Cluster, store: Store) -> None:
    stranger = person(cluster, "eve", None)
    cluster.store.transact(quotas.set_project, cluster.caller, cluster.project.id, ALLOCATIONS, 5)
    made = counting(store)
    assert refused(store, stranger, cluster.project.id) == "not_found"
    statement = next(each for each in made.trips[0] if "FROM quotas" in each)

    def asked(tx: Tx, project_id: str) -> int:
        tx.run("SELECT set_config('gpuaas.project', %(id)s, true)", {"id": project_id})
        return len(tx.run(statement).fetchall())

    assert store.transact(asked, cluster.project.id) == 1
    assert store.transact(lambda tx: len(tx.run(statement).fetchall())) == 0, "noted by another transaction"


def test_a_launch_takes_three_round_trips(cluster: Cluster, store: Store) -> None:
    """What it must know, the node with its slots, and all that it writes with the commit."""
    cluster.agent()
    caller = person(cluster, "ann", "editor")
    made = counting(store)
    launched(store, caller, "a", cluster.project.id)
    assert [trip[-1].split()[0] for trip in made.trips] == ["SELECT", "SELECT", "COMMIT"], made.trips


def test_a_name_that_is_taken_is_refused_with_everything_else(cluster: Cluster, store: Store) -> None:
    cluster.agent()
    caller = person(cluster, "ann", "editor")
    launched(store, caller, "x", cluster.project.id)
    counts = cluster.sql("SELECT node_id, free_slots FROM capacity")
    assert refused(store, caller, cluster.project.id) == "name_taken"
    assert cluster.sql("SELECT node_id, free_slots FROM capacity") == counts
    assert cluster.sql("SELECT count(*) AS n FROM allocations")[0].n == 1
    assert cluster.store.transact(events.verify_audit, cluster.project.org_id)[1] is None
