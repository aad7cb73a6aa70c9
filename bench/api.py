"""How many times per second a user's list and one machine are read through the API, by 16 clients at once.

As an editor of the project, which most users are, and once as an administrator of the platform, who costs more: they
may have broken the glass somewhere. Beside a route of the same server that asks nothing of the database: what HTTP
alone costs. The promise is ten times what dstack's list does on this kind of machine (127/s, p99 319 ms): 1,300/s with
a p99 of 45 ms.
Then how long a server takes to start over a database that is there, and what it takes of memory. Its bytecode is
there, as after `uv tool install --compile-bytecode`.

    bench/api.py [SECONDS]
"""

import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from floors.installation import Up, modelled
from floors.results import record

from gpuaas.sdk import Client
from gpuaas.wire.api import NewOffer

PORT = 7378
CLIENTS = 16
PROCESSES = 2
MACHINES = 40
STARTS = 5
OFFER = NewOffer("bench", "Small", "H100", 1, 1, 64)


def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 8.0
    directory = Path(tempfile.mkdtemp(prefix="gpuaas-bench-", dir="/var/tmp"))
    directory.chmod(0o711)
    try:
        with modelled(directory, PORT, "64xH100") as running:
            lines = measured(running, seconds, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = "\n".join(lines)
    print(text)
    record("api", text)


def measured(running: Up, seconds: float, directory: Path) -> list[str]:
    with running.client() as client:
        client.offers.create(OFFER)
        editor = replace(running, token=editor_of(client))
        launched = [client.allocations.launch(f"machine-{n}", offer=OFFER.slug) for n in range(MACHINES)]
        for each in launched:
            client.wait(each.operations[0].id)
    one = launched[0].allocations[0].id
    routes = {
        "health": (editor, "/healthz"),
        f"list of {MACHINES} machines": (editor, "/api/v1/allocations"),
        "list of 10 machines": (editor, "/api/v1/allocations?limit=10"),
        "one machine": (editor, f"/api/v1/allocations/{one}"),
        f"list of {MACHINES} machines, as administrator": (running, "/api/v1/allocations"),
    }
    rows = []
    for name, (who, path) in routes.items():
        load(who, path, 1.0)
        times = load(who, path, seconds)
        p50, p99 = (1000 * quantile(times, part) for part in (0.5, 0.99))
        promise = "" if name == "health" else "1,300/s, 45 ms"
        rows.append(f"| {name} | {len(times) / seconds:,.0f} | {p50:.1f} | {p99:.1f} | {promise} |")
        print(rows[-1], file=sys.stderr, flush=True)
    began, used = starts(editor, directory / "bytecode")
    return [
        f"{CLIENTS} clients that ask again as soon as they are answered, on the same {os.cpu_count()} cores as the "
        "server and its PostgreSQL.",
        f"Load average at the end: {os.getloadavg()[0]:.0f}.",
        "",
        "| what | per second | p50 ms | p99 ms | promise |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"A server over a database that runs already: first answer after {began:.2f} s (median of {STARTS}; promise "
        f"1.5 s), {used:.0f} MB of memory after {CLIENTS} clients asked (promise: 100 MB).",
    ]


def editor_of(client: Client) -> str:
    """The token of somebody who is nothing but an editor of the project."""
    email, password = "editor@example.org", "a long enough password"
    client.users.create(email, "Editor", password=password)
    client.members.set(next(client.projects.list()).id, email, "editor")
    return Client(client.server).login(email, password).secret


def load(running: Up, path: str, seconds: float) -> list[float]:
    """The times of every answer."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        work = (running.url, running.token, path, seconds, CLIENTS // PROCESSES)
        return [each for some in pool.starmap(ask, [work] * PROCESSES) for each in some]


def ask(url: str, token: str, path: str, seconds: float, clients: int) -> list[float]:
    """Connections without a client library: what is measured is the server."""
    import selectors

    host, port = url.removeprefix("http://").split(":")
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}", "", "")
    request = "\r\n".join(lines).encode()
    selector = selectors.DefaultSelector()
    times: list[float] = []
    buffer = memoryview(bytearray(1 << 18))
    for _ in range(clients):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, [time.perf_counter(), b""])
        connection.sendall(request)
    end = time.perf_counter() + seconds
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(end - now):
            connection, state = key.fileobj, key.data
            assert isinstance(connection, socket.socket)
            state[1] += buffer[: connection.recv_into(buffer)]
            if not state[1].startswith(b"HTTP/1.1 200"[: len(state[1])]):
                raise RuntimeError(state[1][:500].decode())
            head, _, body = state[1].partition(b"\r\n\r\n")
            length = next(
                (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b": -1"
            )
            if len(body) == int(length.split(b":")[1]):
                times.append(time.perf_counter() - state[0])
                state[:] = [time.perf_counter(), b""]
                connection.sendall(request)
    return times


def starts(running: Up, bytecode: Path) -> tuple[float, float]:
    """A second replica, started several times; the memory of one that has worked."""
    took, used = [], 0.0
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "GPUAAS_TOKEN_RATE": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for number in range(STARTS + 1):
        port = PORT + 1
        url = running.url.replace(str(PORT), str(port))
        command = [sys.executable, "-P", "-m", "gpuaas.cli.main", "server", "--port", str(port)]
        command += ["--state-dir", str(running.state)]
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd="/", env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while not answers("127.0.0.1", port):
                time.sleep(0.01)
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with {process.returncode}")
            if number:  # the first one compiles
                took.append(time.monotonic() - began)
            if number == STARTS:
                load(replace(running, url=url), "/api/v1/allocations", 3.0)
                used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        finally:
            process.terminate()
            process.wait(10)
    return statistics.median(took), used


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


if __name__ == "__main__":
    main()
