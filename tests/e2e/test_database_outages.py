"""PostgreSQL is stopped in the middle of everything, again and again, under load; and has no connection left."""

import os
import shutil
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import databases
from api.server import serve
from e2e.test_spine import PASSWORD, Spine, eventually
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.store.embedded import Embedded

OUTAGES = 5
CLIENTS = 6


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[Embedded]:
    """One that keeps what it acknowledged, and that may be killed."""
    directory = databases.new_directory()
    running = Embedded(directory)
    running.start()
    yield running
    running.stop()
    shutil.rmtree(directory)


class Load:
    """Clients that make projects, each under a key of its own, and ask again only when they are told to."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.done = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.acknowledged: set[str] = set()
        self.wrong: list[str] = []
        self.lock = threading.Lock()

    def client(self, number: int) -> None:
        with httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=40) as http:
            count = 0
            while not self.done.is_set():
                count += 1
                self.make(http, f"p{number}-{count}")
                self.note(http.get("/api/v1/projects"))

    def make(self, http: httpx.Client, slug: str) -> None:
        key = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            answer = http.post("/api/v1/projects", json={"slug": slug, "name": slug}, headers=key)
            if self.note(answer) == 201:
                with self.lock:
                    self.acknowledged.add(slug)
                return
            if answer.status_code not in (503, 409, 429):
                return
            time.sleep(0.05)

    def note(self, answer: httpx.Response) -> int:
        status = answer.status_code
        with self.lock:
            self.statuses[status] += 1
            if status in (429, 503) and "retry-after" not in answer.headers:
                self.wrong.append(f"{status} without Retry-After: {answer.text}")
            if status == 409 and answer.json()["code"] != "in_progress":
                self.wrong.append(answer.text)
            if status not in (200, 201, 409, 429, 503):
                self.wrong.append(f"{status}: {answer.text}")
        return status


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_was_acknowledged_survives_a_database_that_dies_again_and_again(
    tmp_path: Path, own_postgres: Embedded
) -> None:
    made = bootstrap(own_postgres.url, email="ada@example.org", password=PASSWORD, org="lab", project="research")
    spine = Spine(tmp_path, own_postgres.url, made)
    try:
        spine.start_server()
        load = Load(spine.url, made.token)
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(load.client, number) for number in range(CLIENTS)]
            for _ in range(OUTAGES):
                time.sleep(1.5)
                kill_immediately(own_postgres)
                time.sleep(0.3)
                own_postgres.start()
            eventually(lambda: ready(spine.url))
            time.sleep(1)
            load.done.set()
            for client in clients:
                client.result(60)
        assert not load.wrong, load.wrong[:5]
        assert load.statuses[503] > 0, "no outage was seen"
        assert load.statuses[201] > 20
        with httpx.Client(base_url=spine.url, headers={"Authorization": f"Bearer {made.token}"}, timeout=60) as http:
            there = [item["slug"] for item in http.get("/api/v1/projects").json()["items"]]
            verdict = http.get("/api/v1/audit/verify").json()
        assert load.acknowledged <= set(there), load.acknowledged - set(there)
        assert len(there) == len(set(there))
        assert verdict["intact"], verdict
        print(f"{dict(load.statuses)} over {OUTAGES} outages, {len(load.acknowledged)} acknowledged, none lost")
    finally:
        spine.end()


def kill_immediately(postgres: Embedded) -> None:
    """As `pg_ctl stop -m immediate`: no goodbye, no checkpoint; the next start recovers from the log."""
    pid = postgres._pid()
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        postgres._child.poll() if postgres._child else None
        assert time.monotonic() < until
        time.sleep(0.02)


def ready(url: str) -> bool:
    return httpx.get(f"{url}/readyz", timeout=30).status_code == 200


def test_without_a_free_connection_a_request_is_told_to_come_back(database_url: str) -> None:
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research")
    with serve(database_url, pool_size=3, pool_seconds=0.5) as replica:
        headers = {"Authorization": f"Bearer {made.token}"}
        assert httpx.get(f"{replica.url}/api/v1/whoami", headers=headers).status_code == 200
        until = time.monotonic() + 20
        held = []
        while len(held) < 3:  # sweeps use one for a moment now and then
            assert time.monotonic() < until
            try:
                held.append(replica.store.engine.connect())
            except Exception:
                time.sleep(0.05)
        try:
            for path in ("/api/v1/whoami", "/readyz"):
                answer = httpx.get(f"{replica.url}{path}", headers=headers, timeout=30)
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                assert answer.headers["retry-after"] == "1"
        finally:
            for connection in held:
                connection.close()
        assert httpx.get(f"{replica.url}/api/v1/whoami", headers=headers).status_code == 200
        refused = {labels["why"]: count for _, labels, count in replica.store.meters.lines("store_unavailable_total")}
        assert refused["pool"] >= 2
