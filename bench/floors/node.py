"""One node with one running machine in this process, without a server: what the node's part of something takes."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from gpuaas.kit.clock import SystemClock
from gpuaas.kit.ids import Ids
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.linux import LinuxConfig, LinuxHost
from gpuaas.node.host.paths import Paths
from gpuaas.node.journal import Journal
from gpuaas.node.lanes import side_by_side
from gpuaas.node.runner import Runner
from gpuaas.node.work import MAKING
from gpuaas.wire.node import AllocationBody, RuntimeSpec, SlotSpec, Spec, Specs

_UID_BASE = 65536 * 900
_SSH_PORT = 20990
_PATIENCE_SECONDS = 60.0


class Node:
    def __init__(self, directory: Path, images: Path) -> None:
        self._ids, paths = Ids(), Paths(directory / "state", directory / "run", images)
        self._pool = ThreadPoolExecutor(MAKING)
        self.host = LinuxHost(
            LinuxConfig(
                paths, "bench", simulate_gpus="1xH100", prefix="gpuaas-bench", interfaces="gb", pool="198.19.240.0/24"
            )
        )
        self.host.prepare()
        journal = Journal(FileDisk(paths.state / "journal"), self._ids)
        journal.joined(self._ids.new("no"))
        self._store = self._ids.new("st")
        journal.synced(self._store)
        self._runner = Runner(self.host, journal, SystemClock(), side_by_side(self._pool))
        self.id, self._generation = self._ids.new("al"), 0
        slot = SlotSpec(self._ids.new("sl"), [self.host.inventory().gpus[0].uuid])
        owners = self._ids.new("or"), self._ids.new("pr")
        self.body = AllocationBody("bench", *owners, [slot], 1, 64, 0, _SSH_PORT, _UID_BASE, [])
        self._want(self.body)

    def step(self, runtimes: list[RuntimeSpec]) -> float:
        """The seconds that the step alone takes to make these the machine's runtimes."""
        body = replace(self.body, runtimes=runtimes)
        began = time.perf_counter()
        reports = self.host.runtimes_ensure(self.id, body)
        taken = time.perf_counter() - began
        assert [each.state for each in reports] == ["ready"] * len(runtimes), reports
        return taken

    def change(self, runtimes: list[RuntimeSpec]) -> float:
        """The seconds of all that the agent does: from the spec's arrival, over the journal, to what it reports."""
        return self._want(replace(self.body, runtimes=runtimes))

    def close(self) -> None:
        self._want(None)
        self._pool.shutdown()
        self.host.shut_down()

    def _want(self, body: AllocationBody | None) -> float:
        self._generation += 1
        revision = self._runner.journal.revision
        spec = Spec(self.id, 1, self._generation, revision + 1, body)
        began = time.perf_counter()
        self._runner.receive(Specs(self._store, revision, revision + 1, [spec]))
        self._runner.converge(self.id)
        taken = time.perf_counter() - began
        while self._state() == "converging" and time.perf_counter() - began < _PATIENCE_SECONDS:
            time.sleep(0.05)
            self._runner.converge(self.id)
        assert self._state() == ("gone" if body is None else "ready"), self._runner.conditions()
        return taken

    def _state(self) -> str:
        return next(each.state for each in self._runner.conditions() if each.id == self.id)
