"""64 clients, two servers, one free slot: exactly one winner, every time, and the rest is told why."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from api.server import serve
from api.world import Person, person
from control.fleet import Agent, join_token
from gpuaas.control.app import allocations
from gpuaas.control.app import identity as people
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.store import identity, stores, tokens
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import is_id
from gpuaas.model.identity import Caller
from gpuaas.wire.api import Launch

CLIENTS = 64
ROUNDS = 200
PARTS = 4  # so that workers share them
CONSISTENT = text(
    "SELECT (SELECT count(*) FROM claims WHERE state <> 'freed') AS live,"
    " (SELECT count(*) FROM claims) AS claims, (SELECT count(*) FROM allocations) AS allocations,"
    " (SELECT count(*) FROM operations WHERE state = 'running') AS running,"
    " (SELECT count(*) FROM audit WHERE action = 'allocation.launch') AS launches"
)


class Arena:
    """One node with one GPU; two replicas over one database."""

    def __init__(self, url: str) -> None:
        bootstrap(url, email="root@example.org", password="correct horse", org="home", project="base")
        # A loaded machine may take longer than a request would wait for a connection.
        self.stores = [Store(connect(url, pool_seconds=60)) for _ in range(2)]
        self.stores[0].transact(stores.ensure)
        self.somebody, self.caller = self.stores[0].transact(self._somebody)
        self.agent = Agent(self.stores[0], "node-1", gpus=1).join(self.stores[0].transact(join_token)).connect()

    def _somebody(self, tx: Tx) -> tuple[Person, Caller]:
        made = person(tx, "racer")
        user = identity.user(tx, made.id)
        assert user is not None
        self.project = people.add_project(tx, people.add_org(tx, "acme", "acme", user), "lab", "lab")
        caller = tokens.caller(tx, made.secret or "")
        assert caller is not None
        return made, caller

    def launch(self, number: int, client: int) -> str:
        """One client's attempt in a round: the id of its machine, or the code of the refusal."""
        request = Launch(f"r{number}-c{client}", "h100-1", project=self.project.id)
        try:
            started, _ = self.stores[client % 2].transact(allocations.launch, self.caller, request)
        except Problem as problem:
            clean = problem.status == 409 and problem.extra.get("reasons")
            return problem.code if clean else f"{problem.status} {problem.message}"
        return started[0][0].id

    def clear(self) -> None:
        """The machine of the last round comes up, is released, and its slot is scrubbed."""
        for allocation in self.stores[1].transact(allocations.list_allocations, self.caller, None, True, None, 10):
            self.agent.settle()
            self.stores[1].transact(allocations.release, self.caller, allocation.id, allocation.name)
            self.agent.settle()

    def still(self) -> None:
        """Nobody sends heartbeats for the node; the servers' sweep must not take it for lost."""
        seen = text("UPDATE nodes SET last_seen_at = now() + interval '1 day'")
        self.stores[0].transact(lambda tx: tx.conn.execute(seen))

    def state(self) -> Any:
        return self.stores[0].transact(lambda tx: tx.conn.execute(CONSISTENT).one())


@pytest.fixture
def arena(database_url: str) -> Iterator[Arena]:
    made = Arena(database_url)
    yield made
    for store in made.stores:
        store.engine.dispose()


def all_at_once(pool: ThreadPoolExecutor, work: Callable[[int], Any]) -> list[Any]:
    ready = threading.Barrier(CLIENTS)

    def run(client: int) -> Any:
        ready.wait()
        return work(client)

    return list(pool.map(run, range(CLIENTS)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_last_slot_has_one_winner(arena: Arena, part: int) -> None:
    rounds = ROUNDS // PARTS
    with ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(rounds):
            results = all_at_once(pool, partial(arena.launch, number))
            said = Counter("won" if is_id(result, "al") else result for result in results)
            assert said == {"won": 1, "no_capacity": CLIENTS - 1}, f"round {number}: {said}"
            assert arena.state().live == 1
            arena.clear()
    state = arena.state()
    assert (state.live, state.running) == (0, 0)
    assert state.claims == state.allocations == state.launches == rounds, "losers left something behind"


@pytest.mark.slow
def test_the_same_over_http_with_every_request_sent_twice(arena: Arena, database_url: str) -> None:
    """32 clients whose networks repeat everything, on both servers: one machine, known only to its winner."""
    arena.still()
    with serve(database_url) as one, serve(database_url) as two, ThreadPoolExecutor(CLIENTS) as pool:
        servers = [httpx.Client(base_url=replica.url, timeout=60) for replica in (one, two)]
        for number in range(5):

            def submit(client: int, number: int = number) -> tuple[str, httpx.Response]:
                name = f"h{number}-c{client // 2}"
                body = {"name": name, "offer": "h100-1", "project": arena.project.id}
                headers = {**arena.somebody.headers, "Idempotency-Key": name}
                return name, servers[client % 2].post("/api/v1/allocations", json=body, headers=headers)

            answers = all_at_once(pool, submit)
            won = {(name, answer.content) for name, answer in answers if answer.status_code == 202}
            refused = Counter(answer.json()["code"] for _, answer in answers if answer.status_code == 409)
            assert len(won) == 1, refused
            assert sum(refused.values()) + sum(answer.status_code == 202 for _, answer in answers) == CLIENTS
            assert set(refused) <= {"no_capacity", "in_progress"}
            state = arena.state()
            assert (state.live, state.launches) == (1, number + 1)
            arena.clear()
