"""One node, killed again and again: its agent, its mount helper, a supervisor, an OCI runtime, each in the middle.

    python -m root.sweep WORK IMAGES NAME WORKER WORKERS POINTS

After each kill an agent goes on, a fresh one if it was the agent: the machine runs, it is released, nothing is left.
Changes of runtimes have one machine for all their points: it runs on, sees what it should, and `current` never dangles.
Prints a line of JSON for each point. A process of its own, because the orphans of whoever is killed come to it.
"""

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuaas.kit.clock import SystemClock
from gpuaas.kit.ids import Ids
from gpuaas.node.host import kernel
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.linux import LinuxConfig, LinuxHost
from gpuaas.node.host.machines import RECORD
from gpuaas.node.host.machines import Record as Machine
from gpuaas.node.host.mounts import idmaps
from gpuaas.node.host.paths import Paths
from gpuaas.node.journal import Journal
from gpuaas.node.runner import Runner
from gpuaas.wire.node import AllocationBody, Condition, RuntimeSpec, SlotSpec, Spec, Specs
from node.samples import NODE, STORE, body
from root import views
from root.erofs import Image, small
from root.residue import residue
from root.tracing import DONE, Part, traced

CONVERGE_SECONDS = 10.0  # from the kill on, with the pauses between tries that the agent makes
GIVE_UP_SECONDS = 30.0


@dataclass(frozen=True)
class Row:
    """`share` of the points, by weight; `cold`: in an agent that has no mount helper yet."""

    verb: str
    part: Part
    share: float
    cold: bool = False


PLAN = (
    Row("launch", Part.AGENT, 0.30),
    Row("launch", Part.HELPER, 0.16),
    Row("launch", Part.HELPER, 0.04, cold=True),
    Row("launch", Part.SUPERVISOR, 0.12),
    Row("launch", Part.RUNTIME, 0.20),
    Row("release", Part.AGENT, 0.12),
    Row("release", Part.SUPERVISOR, 0.06),
    Row("restart", Part.AGENT, 0.03),
    Row("restart", Part.HELPER, 0.01),
    Row("restart", Part.SUPERVISOR, 0.01),
    Row("restart", Part.RUNTIME, 0.01),
    # Last: their machine stays.
    Row("apply", Part.AGENT, 0.06),
    Row("apply", Part.HELPER, 0.02),
    Row("switch", Part.AGENT, 0.04),
    Row("switch", Part.HELPER, 0.02),
    Row("rollback", Part.AGENT, 0.03),
    Row("remove", Part.AGENT, 0.04),
    Row("remove", Part.HELPER, 0.02),
)


@dataclass(frozen=True)
class Point:
    verb: str
    part: str
    number: int
    of: int
    reached: bool
    seconds: float  # from the kill to what was wanted
    trouble: str = ""


class Agent:
    """The agent's process, told what the server would tell it. It ends when its socket does."""

    def __init__(self, config: LinuxConfig) -> None:
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._mine.close()
                _serve(theirs, LinuxHost(config), config)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        assert self._mine.recv(1) == b"+", "the agent did not start"

    def tell(self, spec: Spec, *, traced: bool) -> None:
        self._mine.send(json.dumps({"spec": msgspec.to_builtins(spec), "traced": traced}).encode())

    def answer(self) -> Condition | None:
        """None: it is dead."""
        with suppress(ConnectionError):
            if data := self._mine.recv(1 << 18):
                return msgspec.json.decode(data, type=Condition)
        return None

    def helper(self) -> int:
        """The process of its mount helper, or 0."""
        for pid in _children(self.pid):
            with suppress(OSError):
                if b"mounts.enter" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return 0

    def close(self) -> None:
        self._mine.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve(asked: socket.socket, host: LinuxHost, config: LinuxConfig) -> None:
    journal = Journal(FileDisk(config.paths.state / "journal"), Ids())
    if journal.node_id is None:
        journal.joined(NODE)
        journal.synced(STORE)
    runner = Runner(host, journal, SystemClock())
    asked.send(b"+")
    while data := asked.recv(1 << 18):
        message = json.loads(data)
        spec = msgspec.convert(message["spec"], Spec)
        runner.receive(Specs(STORE, runner.journal.revision, spec.revision, [spec]))
        condition = _settle(runner, spec.id)
        if message["traced"]:
            os.kill(os.getpid(), DONE)
        asked.send(msgspec.json.encode(condition))
    host.close()
    os._exit(0)


def _settle(runner: Runner, id: str) -> Condition:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        runner.observe()
        if id in runner.wanted():
            runner.converge(id)
        condition = next(each for each in runner.conditions() if each.id == id)
        if condition.state != "converging" or time.monotonic() > deadline:
            return condition
        due = runner.due()
        if due is not None:
            time.sleep(max(0.0, due - runner.clock.boottime()))


class Sweep:
    def __init__(self, config: LinuxConfig, uid_base: int, port: int, images: Sequence[Image]) -> None:
        self._config = config
        self._ids = Ids()
        self._revision = 0
        self._killed_at: float | None = None  # until what was wanted has come about
        self._seconds = 0.0  # that it took
        self._changes = changes(*images)
        self._kept: tuple[str, int] | None = None  # the machine of all changes of runtimes, and its generation
        host = LinuxHost(config)
        host.prepare()
        assert host.inventory().ready, host.inventory().reason
        gpu = host.inventory().gpus[0].uuid
        for image in images:
            image.add(host)
        host.close()
        slots = [SlotSpec("sl-" + "a" * 16, [gpu])]
        self._body: AllocationBody = body(FakeHost(), 0, slots=slots, uid_base=uid_base, ssh_port=port)
        self._agent = Agent(config)

    def points(self, row: Row, wanted: int, worker: int, workers: int) -> Iterator[Point]:
        calls = self._count(row)
        wanted = min(wanted, calls)
        numbers = [1 + index * calls // wanted for index in range(wanted)]
        for number in numbers[worker::workers]:
            yield self._point(row, number, calls)

    def finish(self) -> None:
        """The machine that had its runtimes changed is released like any other."""
        if self._kept is not None:
            id, generation = self._kept
            self._release(self._spec(id, generation + 1, None))

    def close(self) -> None:
        self._agent.close()
        self._reap()
        LinuxHost(self._config).shut_down()
        self._reap()

    def _count(self, row: Row) -> int:
        """The fewer of two: the first of an agent's verbs does what later ones find done."""
        return min(self._act(row, self._ids.new("al"), 0)[0] for _ in range(2))

    def _point(self, row: Row, number: int, of: int) -> Point:
        id, trouble, reached = self._ids.new("al"), "", False
        self._killed_at, self._seconds = None, 0.0
        try:
            _, reached = self._act(row, id, number)
        except AssertionError as error:
            trouble = str(error)
        return Point(row.verb, row.part.value, number, of, reached, round(self._seconds, 3), trouble)

    def _act(self, row: Row, id: str, number: int) -> tuple[int, bool]:
        return self._change(row, number) if row.verb in self._changes else self._verb(row, id, number)

    def _change(self, row: Row, number: int) -> tuple[int, bool]:
        """Of a machine's runtimes, while it runs."""
        before, after = self._changes[row.verb]
        id, first = self._running()
        self._want(self._next(before), "ready")
        change = self._next(after)
        calls, reached = self._traced(row, id, number, change)
        views.is_whole(first)
        views.is_told(self._want(change, "ready"), after)
        views.shows(first, after)
        assert self._machine(id).first.pid == first, "it was started anew"
        return calls, reached

    def _running(self) -> tuple[str, int]:
        """The machine whose runtimes are changed, and its first process."""
        if self._kept is None:
            self._kept = self._ids.new("al"), 0
            self._want(self._next([]), "ready")
        return self._kept[0], self._machine(self._kept[0]).first.pid

    def _next(self, runtimes: list[RuntimeSpec]) -> Spec:
        assert self._kept is not None
        id, generation = self._kept
        self._kept = id, generation + 1
        return self._spec(id, generation + 1, replace(self._body, runtimes=runtimes))

    def _verb(self, row: Row, id: str, number: int) -> tuple[int, bool]:
        if row.cold:
            self._agent.close()
            self._agent = Agent(self._config)
        elif row.part is not Part.AGENT and not self._agent.helper():
            warm = self._ids.new("al")
            self._want(self._spec(warm, 1, self._body), "ready")
            self._want(self._spec(warm, 2, None), "gone")
        specs = {
            "launch": self._spec(id, 1, self._body),
            "restart": self._spec(id, 2, replace(self._body, restarts=1)),
            "release": self._spec(id, 3, None),
        }
        if row.verb != "launch":
            self._want(specs["launch"], "ready")
        calls, reached = self._traced(row, id, number, specs[row.verb])
        if row.verb != "release":
            self._want(specs[row.verb], "ready")
            machine, running = self._machine(id), idmaps.processes(self._body.uid_base)
            assert running == [machine.first.pid], f"there is not one container: {running}"
            assert machine.restarts == (row.verb == "restart"), "it was not started anew"
        self._release(specs["release"])
        return calls, reached

    def _release(self, spec: Spec) -> None:
        self._want(spec, "gone")
        self._reap()
        left = residue(self._config, self._body, self._agent.helper(), self._reap)
        assert not left, f"left: {left}"

    def _traced(self, row: Row, id: str, number: int, spec: Spec) -> tuple[int, bool]:
        pids = {self._agent.pid: Part.AGENT}
        if row.part is not Part.AGENT and not row.cold:
            ends = row.part is Part.SUPERVISOR and row.verb != "launch"  # the one that runs, not one that is started
            found = self._machine(id).supervisor.pid if ends else self._agent.helper()
            pids[found] = Part.SUPERVISOR if ends else Part.HELPER
        calls, reached = traced(row.part, number, pids, lambda: self._agent.tell(spec, traced=True))
        self._killed_at = time.monotonic() if reached else None
        if self._agent.answer() is None:
            self._agent.close()
            self._agent = Agent(self._config)
        return calls, reached

    def _want(self, spec: Spec, state: str) -> Condition:
        began = time.monotonic()
        self._agent.tell(spec, traced=False)
        condition = self._agent.answer()
        assert condition is not None, "the agent died by itself"
        took = time.monotonic() - (self._killed_at or began)
        assert condition.state == state, f"{condition.state}, not {state}, after {took:.1f} s: {_why(condition)}"
        assert took < CONVERGE_SECONDS, f"took {took:.1f} s"
        if self._killed_at is not None:
            self._killed_at, self._seconds = None, took
        return condition

    def _spec(self, id: str, generation: int, body: AllocationBody | None) -> Spec:
        self._revision += 1
        return Spec(id, 1, generation, self._revision, body)

    def _machine(self, id: str) -> Machine:
        return msgspec.json.decode((self._config.paths.live(id) / RECORD).read_bytes(), type=Machine)

    def _reap(self) -> None:
        """Orphans come to this process; the agent is waited for by itself."""
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid == self._agent.pid:
                    return
                os.waitpid(found.si_pid, 0)


def changes(one: Image, two: Image) -> dict[str, tuple[list[RuntimeSpec], list[RuntimeSpec]]]:
    """Of runtimes: what the machine has before it, and what it has then."""
    first, second = one.spec("tool", "1.0"), two.spec("tool", "2.0")
    beside_first, beside_second = (replace(each, current=False) for each in (first, second))
    return {
        "apply": ([], [first]),
        "switch": ([first], [beside_first, second]),
        "rollback": ([beside_first, second], [first, beside_second]),
        "remove": ([beside_first, second], []),
    }


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _why(condition: Condition) -> str:
    return str(condition.failure or [step for step in condition.steps if step.state == "failed"])


def main() -> None:
    work, images, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    worker, workers, points = map(int, sys.argv[4:7])
    kernel.become_subreaper()
    config = LinuxConfig(
        paths=Paths(work / f"state{worker}", work / f"run{worker}", images),
        hostname="test-node",
        simulate_gpus="1xH100",
        prefix=f"{name}-{worker}",
        interfaces=f"gs{worker}",
        pool=f"198.19.{worker}.0/24",
        disk_mib=64,
    )
    images = [small(work / f"images{worker}", version) for version in ("1.0", "2.0")]
    sweep = Sweep(config, 65536 * (200 + worker), 20200 + worker, images)
    weight = sum(row.share for row in PLAN)
    try:
        for row in PLAN:
            for point in sweep.points(row, round(points * row.share / weight), worker, workers):
                print(json.dumps(asdict(point)), flush=True)
        sweep.finish()
    finally:
        sweep.close()


if __name__ == "__main__":
    main()
