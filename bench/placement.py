"""Full launch transactions per second at 100 and 10,000 nodes x 8 slots, beside the bare indexed claim in the same run.

A launch is what the API runs: access, quota, placement, claim, allocation, operation, spec, events, audit; committed
durably, by several server processes at once, for many projects of many orgs. The bare claim is the floor: one indexed
`UPDATE ... FOR UPDATE SKIP LOCKED` on a table of the same number of slots and a commit, by the same processes.

    bench/placement.py [ROUNDS [NODES]...]    with other numbers of NODES nothing is recorded
"""

import base64
import hashlib
import logging
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from floors.results import record
from sqlalchemy import make_url, text

from gpuaas.control.app import allocations, keys, offers
from gpuaas.control.app import identity as people
from gpuaas.control.store import capacity, identity, migrate, stores, tokens
from gpuaas.control.store.embedded import Embedded
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.wire.api import Launch

SIZES = (100, 10_000)
SLOTS = 8
PROCESSES, THREADS = 2, 4
ORGS, PROJECTS = 16, 4  # of each org
PER_ROUND = 496

# A quarter of the slots of every node is in use before anything is measured.
FLEET = """
INSERT INTO nodes (id, name, public_key, state, approve_slots, inventory, created_at, last_seen_at)
SELECT 'nd-' || lpad(n::text, 16, 'a'), 'node-' || n, n::text, 'ready', true,
       '{"ready": true, "reason": "", "address": "192.0.2.1", "gpus": []}', now(), now() + interval '1 day'
FROM generate_series(1, %(nodes)s) n;
INSERT INTO slots (id, node_id, name, gpu_model, gpus, cpus, memory_mib, numa, state, link_group, created_at)
SELECT 'sl-' || lpad(n::text, 12, 'a') || lpad(s::text, 4, 'a'), 'nd-' || lpad(n::text, 16, 'a'), 'gpu' || s, 'H100',
       ARRAY['GPU-' || n || '-' || s], 8, 65536, s / 4, 'approved', 0, now()
FROM generate_series(1, %(nodes)s) n, generate_series(0, %(slots)s - 1) s;
INSERT INTO cards (gpu, cut) SELECT gpus[1], false FROM slots;
INSERT INTO slot_gpus (gpu, slot_id, card, cut) SELECT gpus[1], id, gpus[1], false FROM slots;
INSERT INTO allocations (id, org_id, project_id, name, offer_id, owner_id, group_id, state, node_id, seat, realisation,
                         incarnation, generation, key_ids, created_at)
SELECT 'al-' || substr(s.id, 4), p.org_id, p.id, 'm-' || substr(s.id, 4), (SELECT id FROM offers WHERE slug = 'bench'),
       (SELECT id FROM users LIMIT 1), 'gr-x', 'active', s.node_id, right(s.name, 1)::int + 1000, 'gpu_slice', 1, 1,
       '{}', now()
FROM slots s, LATERAL (SELECT * FROM projects WHERE s.id <> '' ORDER BY id LIMIT 1) p WHERE right(s.name, 1)::int < 2;
INSERT INTO claims (id, slot_id, allocation_id, state, created_at)
SELECT 'cl-' || substr(id, 4), id, 'al-' || substr(id, 4), 'held', now() FROM slots WHERE right(name, 1)::int < 2;
ALTER TABLE allocations DISABLE TRIGGER stays;
CREATE TABLE bare (id bigint PRIMARY KEY, node bigint, model text, taken bigint);
INSERT INTO bare SELECT n * %(slots)s + s, n, 'H100', CASE WHEN s < 2 THEN 0 END
FROM generate_series(1, %(nodes)s) n, generate_series(0, %(slots)s - 1) s;
CREATE INDEX bare_free ON bare (model, node, id) WHERE taken IS NULL;
"""
CLEAR = """
DELETE FROM claims WHERE created_at > %(since)s;
DELETE FROM operations; DELETE FROM specs; DELETE FROM events; DELETE FROM audit WHERE action = 'allocation.launch';
DELETE FROM allocations WHERE created_at > %(since)s;
UPDATE orgs SET audit_seq = coalesce((SELECT max(seq) FROM audit WHERE org_id = orgs.id), 0);
UPDATE capacity SET free_slots = 6, free_gpus = 6, together = 4, linked = 6 WHERE free_slots < 6;
UPDATE bare SET taken = NULL WHERE taken > 0;
"""
BARE = (
    "UPDATE bare SET taken = %s WHERE id = (SELECT id FROM bare WHERE model = 'H100' AND taken IS NULL"
    " ORDER BY node, id LIMIT 1 FOR UPDATE SKIP LOCKED)"
)


@dataclass(frozen=True)
class Buyer:
    secret: str
    project: str


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    logging.disable(logging.CRITICAL)
    sizes = [int(text) for text in sys.argv[2:]] or list(SIZES)
    found = {nodes: measured(nodes, rounds) for nodes in sizes}
    lines = [
        f"Durable transactions per second, {PROCESSES} processes x {THREADS} connections, {ORGS * PROJECTS} projects of"
        f" {ORGS} orgs, median of {rounds} rounds of {PER_ROUND} (lowest to highest), load average"
        f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        "| nodes x slots | bare claim/s | launch/s | launch / claim |",
        "|---|---|---|---|",
    ]
    for nodes, (bare, ours) in found.items():
        ratio = statistics.median(ours) / statistics.median(bare)
        lines.append(f"| {nodes:,} x {SLOTS} | {_spread(bare)} | {_spread(ours)} | {ratio:.2f} |")
    few, many = statistics.median(found[sizes[0]][1]), statistics.median(found[sizes[-1]][1])
    lines += ["", f"Kept at {sizes[-1]:,} nodes: {many / few:.0%} (promise: 85 %). Promise per second: 500."]
    print("\n".join(lines))
    if tuple(sizes) == SIZES:
        record("placement", "\n".join(lines))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def measured(nodes: int, rounds: int) -> tuple[list[float], list[float]]:
    with _server() as url:
        store = Store(connect(url, pool_size=1))
        store.transact(stores.ensure)
        buyers = store.transact(_buyers)
        store.transact(lambda tx: _script(tx, FLEET, nodes=nodes, slots=SLOTS))
        store.transact(_recount)
        since = store.clock.now()
        bare, ours = [], []
        with _workers(url, buyers) as run:
            for number in range(rounds + 1):
                results = run("bare", number), run("launch", number)
                if number:  # the first one warms up
                    bare.append(PER_ROUND / results[0])
                    ours.append(PER_ROUND / results[1])
                store.transact(lambda tx: _script(tx, CLEAR, since=since))
        store.engine.dispose()
    return bare, ours


def _script(tx: Tx, statements: str, **values: Any) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            tx.run(statement, values)


def _recount(tx: Tx) -> None:
    for node_id in tx.conn.execute(text("SELECT id FROM nodes ORDER BY id")).scalars().all():
        capacity.changed(tx, node_id)


def _buyers(tx: Tx) -> list[Buyer]:
    offers.add_offer(
        tx, slug="bench", name="One", gpu_model="H100", gpu_count=1, cpus=8, memory_mib=65536, isolation="any",
        realisations=["gpu_slice"], price_micros_per_hour=1,
    )  # fmt: skip
    made = []
    for number in range(ORGS):
        admin, user = (people.add_user(tx, f"{name}{number}@example.org", "U", None, None) for name in "au")
        org = people.add_org(tx, f"org-{number}", "Org", admin)
        _, secret = tokens.insert_token(tx, user.id, "bench", ("*",), tx.now.replace(year=tx.now.year + 1))
        caller = tokens.caller(tx, secret)
        assert caller is not None
        keys.add_key(tx, caller, "laptop", _key_line(number))
        for n in range(PROJECTS):
            project = people.add_project(tx, org, f"p-{n}", "P")
            identity.set_member(tx, project.id, user.id, "editor")
            made.append(Buyer(secret, project.id))
    return made


def _key_line(number: int) -> str:
    parts = (b"ssh-ed25519", hashlib.sha256(str(number).encode()).digest())
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


@contextmanager
def _server() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="gpuaas-bench-", dir="/var/tmp"))
    directory.chmod(0o711)
    running = Embedded(directory)
    try:
        url = running.start()
        migrate.upgrade(url)
        yield url
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _workers(url: str, buyers: list[Buyer]) -> Iterator[Callable[[str, int], float]]:
    """Calls back with the seconds that a round took, from the moment that every process is ready."""
    pipes, processes = [], []
    for number in range(PROCESSES):
        mine, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(theirs, number, url, buyers))
        process.start()
        pipes.append(mine)
        processes.append(process)

    def run(what: str, number: int) -> float:
        started = time.monotonic()
        for pipe in pipes:
            pipe.send((what, number))
        for pipe in pipes:
            done = pipe.recv()
            assert done == PER_ROUND // PROCESSES, done
        return time.monotonic() - started

    try:
        yield run
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(None)
            process.join()


def _work(pipe: Any, number: int, url: str, buyers: list[Buyer]) -> None:
    logging.disable(logging.CRITICAL)
    store = Store(connect(url, pool_size=THREADS))
    libpq = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    bare = [psycopg.connect(libpq) for _ in range(THREADS)]
    callers = [(store.transact(tokens.caller, buyer.secret), buyer.project) for buyer in buyers[number::PROCESSES]]
    each = PER_ROUND // PROCESSES // THREADS

    def claims(thread: int, round: int) -> int:
        for n in range(each):
            bare[thread].execute(BARE, [n + 1])
            bare[thread].commit()
        return each

    def launches(thread: int, round: int) -> int:
        for n in range(each):
            caller, project = callers[(thread * each + n) % len(callers)]
            request = Launch(f"r{round}-{number}-{thread}-{n}", "bench", project=project)
            store.transact(allocations.launch, caller, request, actor=caller.user_id)
        return each

    with ThreadPoolExecutor(THREADS) as pool:
        while (order := pipe.recv()) is not None:
            what, round = order
            verb = partial(claims if what == "bare" else launches, round=round)
            done = list(pool.map(verb, range(THREADS)))
            pipe.send(sum(done))
    for connection in bare:
        connection.close()
    store.engine.dispose()


if __name__ == "__main__":
    main()
