"""How long a launch takes, beside the same container made by hand (`floors/machine.py`) in the same run.

From submit, through the API, to the SSH banner and to the end of `ssh true`: one, ten and fifty at a time, and with
5,000 foreign mounts on the host. Then what the agent takes while nothing happens. Needs root and the test image.

    bench/launch.py [ROUNDS OF ONE] [ROUNDS OF TEN] [ROUNDS OF FIFTY]
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from floors.installation import Up, image, release_all, up
from floors.machine import Floor
from floors.results import record

from gpuaas.sdk import Client
from gpuaas.wire.api import NewOffer

PORT = 7377
MOST = 50
FOREIGN_MOUNTS = 5000
IDLE_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
OFFER = NewOffer("bench", "Small", "H100", 1, 1, 64)
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "StrictHostKeyChecking=no",
       "-o", "UserKnownHostsFile=/dev/null", "-F", "none")  # fmt: skip

# Starts number n and says where its sshd is.
Start = Callable[[int], tuple[str, int]]


def main() -> None:
    rounds = [int(text) for text in sys.argv[1:]] or [20, 4, 2]
    directory = Path(tempfile.mkdtemp(prefix="gpuaas-bench-", dir="/var/tmp"))
    directory.chmod(0o711)
    try:
        with up(directory, PORT, "64xH100") as running:
            lines = measured(running, directory, dict(zip((1, 10, MOST), rounds, strict=False)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = "\n".join(lines)
    print(text)
    record("launch", text)


def measured(running: Up, directory: Path, rounds: dict[int, int]) -> list[str]:
    clients = [running.client() for _ in range(MOST)]
    clients[0].offers.create(OFFER)
    for client in clients:
        client.whoami()  # connected, as a user's would be
    bench = Bench(running, clients, Floor(directory / "floor", image(), running.key.with_suffix(".pub").read_text()))
    idle = [f"| 0 | {bench.idle()} |"]
    lines = [
        "| at a time | to | n | floor p50 | p99 | ours p50 | p99 "
        "| p50 ratio | p99 ratio | to the clean floor | promise |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    try:
        bench.compare("warm", 1, 3)  # the first of everything: imports, caches
        bench.compare("warm", 10, 1)  # and of several at once: threads, connections to the database
        for at_once, times in rounds.items():
            lines += bench.compare(str(at_once), at_once, times)
        with foreign_mounts(directory / "foreign", FOREIGN_MOUNTS):
            for at_once, times in list(rounds.items())[:2]:
                lines += bench.compare(f"{at_once}, {FOREIGN_MOUNTS:,} mounts", at_once, max(1, times // 2))
        bench.hold(MOST)
        idle.append(f"| {MOST} | {bench.idle()} |")
    finally:
        release_all(clients[0])
        bench.floor.close()
    return [
        "Milliseconds from submit, on a machine that others use too: read the ratios. n is the number of launches: "
        "below 100 of them, p99 is the slowest.",
        f"Load average at the end: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
        "",
        *lines,
        "",
        f"The agent while nothing happens, over {IDLE_SECONDS:.0f} s (promise: 60 MB, 0.5 % of a core):",
        "",
        "| machines | agent, % of a core | agent RSS MB | PSS MB | helper PSS MB | a supervisor's PSS MB |",
        "|---|---|---|---|---|---|",
        *idle,
    ]


class Bench:
    def __init__(self, running: Up, clients: list[Client], floor: Floor) -> None:
        self.running = running
        self.clients = clients
        self.floor = floor
        self._clean: dict[tuple[int, str, bool], tuple[float, float]] = {}

    def compare(self, label: str, at_once: int, times: int) -> list[str]:
        """Turn and turn about, so that a busy minute of this machine is everybody's."""
        floor: dict[str, list[float]] = {"banner": [], "ssh": []}
        ours: dict[str, list[float]] = {"banner": [], "ssh": []}
        for _ in range(times):
            for login in (False, True):
                what = "ssh" if login else "banner"
                floor[what] += self._floor_round(at_once, login)
                ours[what] += self._our_round(at_once, login)
        rows = []
        for what, promise in (("banner", "2x, 5x"), ("ssh", "1.3x")):
            numbers = [quantile(floor[what], 0.5), quantile(floor[what], 0.99)]
            numbers += [quantile(ours[what], 0.5), quantile(ours[what], 0.99)]
            shown = " | ".join(f"{number * 1000:.0f}" for number in numbers)
            # Foreign mounts slow the floor down as well: what counts is the one without them, measured first.
            clean = self._clean.setdefault((at_once, what, label == "warm"), (numbers[0], numbers[1]))
            pairs = ((numbers[2], numbers[0]), (numbers[3], numbers[1]))
            ratios = " | ".join(f"{mine / floors:.2f}" for mine, floors in pairs)
            ratios += f" | {numbers[2] / clean[0]:.2f}, {numbers[3] / clean[1]:.2f}"
            rows.append(f"| {label} | {what} | {len(ours[what])} | {shown} | {ratios} | {promise} |")
            print(rows[-1], file=sys.stderr, flush=True)
        return rows

    def hold(self, count: int) -> None:
        self._round(count, self._launch, login=False)

    def idle(self) -> str:
        time.sleep(5.0)
        before, began = cpu_seconds(self.running.agent), time.monotonic()
        time.sleep(IDLE_SECONDS)
        used = (cpu_seconds(self.running.agent) - before) / (time.monotonic() - began)
        agent = self.running.agent
        helper = [pss_mb(pid) for pid in processes("mounts.enter", str(self.running.state)) if parent(pid) == agent]
        ids = [each.id for each in self.clients[0].allocations.list()]
        supervisors = [pss_mb(pid) for id in ids for pid in processes("gpuaas-supervisor", id)]
        shown = " | ".join(f"{statistics.median(some):.1f}" if some else "-" for some in (helper, supervisors))
        return f"{used * 100:.2f} | {rss_mb(agent):.0f} | {pss_mb(agent):.0f} | {shown}"

    def _floor_round(self, at_once: int, login: bool) -> list[float]:
        try:
            return self._round(at_once, self.floor.start, login)
        finally:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(self.floor.stop, range(at_once)))

    def _our_round(self, at_once: int, login: bool) -> list[float]:
        try:
            return self._round(at_once, self._launch, login)
        finally:
            release_all(self.clients[0])

    def _launch(self, number: int) -> tuple[str, int]:
        launched = self.clients[number].allocations.launch(f"bench-{number}", offer=OFFER.slug)
        endpoint = launched.allocations[0].endpoint
        assert endpoint is not None
        return endpoint.host, endpoint.port

    def _round(self, at_once: int, start: Start, login: bool) -> list[float]:
        together = threading.Barrier(at_once)

        def one(number: int) -> float:
            together.wait(PATIENCE_SECONDS)
            began = time.monotonic()
            host, port = start(number)
            # One look per millisecond by all together: at 50 at a time, more would be the bench's own load.
            wait_for_banner(host, port, began + PATIENCE_SECONDS, pause_seconds=0.001 * max(2, at_once))
            if login:
                identity = ("-i", str(self.running.key), "-p", str(port), f"gpu@{host}", "true")
                subprocess.run([*SSH, *identity], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
            return time.monotonic() - began

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(one, range(at_once)))


def wait_for_banner(host: str, port: int, deadline: float, pause_seconds: float = 0.002) -> None:
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), PATIENCE_SECONDS) as connection:
                if connection.recv(64).startswith(b"SSH-"):
                    return
        except (ConnectionRefusedError, ConnectionResetError):
            pass
        time.sleep(pause_seconds)
    raise TimeoutError(f"no SSH banner from {host}:{port}")


@contextmanager
def foreign_mounts(directory: Path, count: int) -> Iterator[None]:
    """On a private tmpfs of their own, so that nobody else's mount namespace gets them, and one unmount ends all."""
    directory.mkdir()
    script = f"""
        set -e
        mount -t tmpfs foreign {directory}
        mount --make-private {directory}
        cd {directory}
        seq {count} | xargs mkdir
        seq {count} | xargs -I N mount --bind N N
    """
    try:
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, timeout=300)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True)


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def cpu_seconds(pid: int) -> float:
    """With the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def processes(*words: str) -> list[int]:
    """With all of these in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            command = (process / "cmdline").read_text()
            if all(word in command for word in words):
                found.append(int(process.name))
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main()
