"""From the commit of an event to whoever waits for it: a follower of the feed (SSE), and a webhook's target.

Time begins before the transaction that writes the event, and ends when the frame, or the request, is read. The floor
in the same run: a transaction that writes one row, a NOTIFY, and the same row read by who listened.

    bench/events.py [EVENTS]    with another number of EVENTS nothing is recorded
"""

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psycopg
from floors.results import record
from sqlalchemy import make_url

from gpuaas.control.app import webhooks
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.store import identity
from gpuaas.control.store.embedded import Embedded
from gpuaas.control.store.transaction import Store, Tx, connect

EVENTS = 300
FOLLOWERS = (1, 20)
PAUSE_SECONDS = 0.02


def percentiles(seconds: list[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1000, ordered[int(len(ordered) * 0.99)] * 1000


def floor(url: str, count: int) -> list[float]:
    libpq = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as writing, psycopg.connect(libpq, autocommit=True) as listening:
        writing.execute("CREATE TABLE bench (n int)")
        listening.execute("LISTEN bench")
        found = []
        for number in range(count):
            started = time.perf_counter()
            writing.execute("INSERT INTO bench VALUES (%s)", [number])
            writing.execute("NOTIFY bench")
            next(listening.notifies(stop_after=1))
            listening.execute("SELECT n FROM bench ORDER BY n DESC LIMIT 1").fetchone()
            found.append(time.perf_counter() - started)
            time.sleep(PAUSE_SECONDS)
        writing.execute("DROP TABLE bench")
    return found


class Seen:
    """When each number was first seen, by how many."""

    def __init__(self) -> None:
        self.at: dict[str, list[float]] = {}
        self.lock = threading.Lock()

    def note(self, key: str) -> None:
        with self.lock:
            self.at.setdefault(key, []).append(time.perf_counter())


def follow(url: str, token: str, seen: Seen, opened: threading.Barrier, stop: threading.Event) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{url}/api/v1/events/follow", headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        opened.wait(30)
        for line in lines:
            if line.startswith("data: "):
                seen.note(json.loads(line[6:])["object_id"])
            if stop.is_set():
                return


def target(seen: Seen) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.note(json.loads(body)["object_id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def emit(tx: Tx, project: identity.Project, key: str) -> None:
    tx.emit("member.set", org_id=project.org_id, project_id=project.id, kind="user", id=key, role="viewer")


def written(store: Store, project: identity.Project, prefix: str, count: int) -> dict[str, float]:
    started = {}
    for number in range(count):
        key = f"{prefix}-{number}"
        started[key] = time.perf_counter()
        store.transact(emit, project, key)
        time.sleep(PAUSE_SECONDS)
    return started


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    directory = Path(tempfile.mkdtemp(prefix="gpuaas-bench-"))
    directory.chmod(0o711)
    postgres = Embedded(directory)
    url = postgres.start()
    made = bootstrap(url, email="bench@example.org", password="correct horse battery", org="bench", project="bench")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gpuaas.cli.main", "server", "--port", str(port), "--state-dir", str(directory)]
    environment = {**os.environ, "GPUAAS_DATABASE_URL": url, "GPUAAS_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    store = Store(connect(url, pool_size=2))
    try:
        address = f"http://127.0.0.1:{port}"
        while not _ready(address):
            time.sleep(0.05)
        rows = [("floor: row, NOTIFY, read", 1, *percentiles(floor(url, count)))]
        project = store.transact(lambda tx: identity.visible_projects(tx, identity.users(tx, "", 1)[0].id))[0][0]
        for followers in FOLLOWERS:
            found = _followed(store, project, address, made.token, followers, count)
            rows.append((f"SSE, {followers} following", followers, *found))
        rows.append(("webhook", 1, *_sent(store, project, count)))
        _tell(rows, count)
    finally:
        server.terminate()
        server.wait(20)
        store.engine.dispose()
        postgres.stop()
        shutil.rmtree(directory)


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _followed(
    store: Store, project: identity.Project, address: str, token: str, followers: int, count: int
) -> tuple[float, float]:
    seen, opened, stop = Seen(), threading.Barrier(followers + 1), threading.Event()
    for _ in range(followers):
        threading.Thread(target=follow, args=(address, token, seen, opened, stop), daemon=True).start()
    opened.wait(30)
    started = written(store, project, f"sse{followers}", count)
    time.sleep(1)
    stop.set()
    store.transact(emit, project, "the-end")
    assert all(len(seen.at.get(key, ())) == followers for key in started), "somebody missed an event"
    return percentiles([at - begun for key, begun in started.items() for at in seen.at[key]])


def _sent(store: Store, project: identity.Project, count: int) -> tuple[float, float]:
    seen = Seen()
    there = target(seen)
    place = webhooks.Place(project.org_id, project.id)
    where = f"http://127.0.0.1:{there.server_address[1]}/"
    store.transact(webhooks.create_webhook, place, "bench", where, ["member.*"])
    started = written(store, project, "hook", count)
    until = time.monotonic() + 60
    while len(seen.at) < count and time.monotonic() < until:
        time.sleep(0.05)
    store.transact(webhooks.remove_webhook, place, "bench")
    there.shutdown()
    assert len(seen.at) >= count, "a delivery is missing"
    return percentiles([seen.at[key][0] - begun for key, begun in started.items()])


def _tell(rows: list[tuple[str, int, float, float]], count: int) -> None:
    load = os.getloadavg()[0]
    text = [
        f"Milliseconds from before the transaction to the reader; {count} events, one every "
        f"{PAUSE_SECONDS * 1000:.0f} ms, at load average {load:.0f} on {os.cpu_count()} processors: read the ratios.",
        "",
        "| what | p50 | p99 |",
        "|---|---|---|",
        *(f"| {what} | {p50:.1f} | {p99:.1f} |" for what, _, p50, p99 in rows),
    ]
    print("\n".join(text))
    if count == EVENTS:
        record("events", "\n".join(text))


if __name__ == "__main__":
    main()
