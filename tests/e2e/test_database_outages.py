"""PostgreSQL is stopped in the middle of everything, again and again, under load; and has no connection left."""

import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import databases
from api.server import serve
from e2e.test_spine import PASSWORD, Spine, eventually, node_ready
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
    """Clients that make projects, or launch and release machines, each time under a key of its own. They ask again only
    when they are told to."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.done = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.projects: set[str] = set()  # acknowledged, as is what was
        self.launched: set[str] = set()
        self.released: set[str] = set()
        self.wrong: list[str] = []
        self.lock = threading.Lock()

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=40)

    def make_projects(self, number: int) -> None:
        with self.http() as http:
            for slug in self.names(f"p{number}"):
                if self.ask(http, "/api/v1/projects", {"slug": slug, "name": slug}):
                    self.projects.add(slug)
                self.note(http.get("/api/v1/projects"))

    def use_machines(self, number: int) -> None:
        with self.http() as http:
            for name in self.names(f"m{number}"):
                made = self.ask(
                    http, "/api/v1/allocations", {"name": name, "project": "research", "offer": "h100-1", "wait": True}
                )
                if made:
                    id = made["allocations"][0]["id"]
                    self.launched.add(id)
                    self.note(http.get(f"/api/v1/allocations/{id}"))
                    if self.ask(http, f"/api/v1/allocations/{id}/release", {"confirm": name}):
                        self.released.add(id)

    def names(self, prefix: str) -> Iterator[str]:
        numbers = count(1)
        while not self.done.is_set():
            yield f"{prefix}-{next(numbers)}"

    def ask(self, http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
        """What it answers once it is done; None when that was wrong."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            answer = http.post(path, json=body, headers=key)
            if self.note(answer) in (201, 202):
                return answer.json()
            if answer.status_code not in (503, 409, 429):
                return None
            time.sleep(0.05)

    def note(self, answer: httpx.Response) -> int:
        status = answer.status_code
        with self.lock:
            self.statuses[status] += 1
            if status in (429, 503) and "retry-after" not in answer.headers:
                self.wrong.append(f"{status} without Retry-After: {answer.text}")
            if status == 409 and answer.json()["code"] != "in_progress":
                self.wrong.append(answer.text)
            if status not in (200, 201, 202, 409, 429, 503):
                self.wrong.append(f"{status}: {answer.text}")
        return status


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_was_acknowledged_survives_a_database_that_dies_again_and_again(
    tmp_path: Path, own_postgres: Embedded
) -> None:
    made = bootstrap(
        own_postgres.url, email="ada@example.org", password=PASSWORD, org="lab", project="research", node="n1"
    )
    spine = Spine(tmp_path, own_postgres.url, made)
    try:
        spine.start_server()
        spine.start_agent()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
        with spine.client() as client:
            client.keys.add("laptop", (tmp_path / "key.pub").read_text().strip())
        eventually(lambda: node_ready(spine))
        load = Load(spine.url, made.token)
        with ThreadPoolExecutor(CLIENTS) as pool:
            kinds = [load.make_projects, load.use_machines]
            clients = [pool.submit(kinds[number % 2], number) for number in range(CLIENTS)]
            for _ in range(OUTAGES):
                time.sleep(1.5)
                kill_immediately(own_postgres)
                time.sleep(0.3)
                own_postgres.start()
            eventually(lambda: ready(spine.url))
            time.sleep(1)
            load.done.set()
            for client_ in clients:
                client_.result(60)
        assert not load.wrong, load.wrong[:5]
        assert load.statuses[503] > 0, "no outage was seen"
        assert load.statuses[201] > 20
        assert load.launched, "nobody got a machine"
        assert load.launched == load.released
        with load.http() as http:
            eventually(lambda: not http.get("/api/v1/allocations").json()["items"])  # all of them end
            there = [item["slug"] for item in http.get("/api/v1/projects").json()["items"]]
            verdict = http.get("/api/v1/audit/verify").json()
            slots = http.get("/api/v1/nodes/n1").json()["slots"]
        with spine.client() as client:
            machines = {item.id: item.state for item in client.allocations.list(released=True)}
        assert load.projects <= set(there), load.projects - set(there)
        assert len(there) == len(set(there))
        assert machines == dict.fromkeys(load.launched, "released"), "none lost, and none that nobody was told of"
        assert [slot["allocation_id"] for slot in slots] == [None] * len(slots)
        assert verdict["intact"], verdict
        print(f"{dict(load.statuses)} over {OUTAGES} outages, {len(machines)} machines, {len(load.projects)} projects")
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
