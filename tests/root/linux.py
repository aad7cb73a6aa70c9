"""A node of the test's own on this machine: other names for everything, the cached base image."""

import dataclasses
import os
import random
import subprocess
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.ids import Ids
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.linux import LinuxConfig, LinuxHost
from gpuaas.node.host.machines import RECORD, Record
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE
from gpuaas.node.host.paths import Paths
from gpuaas.node.journal import Journal
from gpuaas.node.runner import Runner
from gpuaas.wire.node import AllocationBody, Condition, KeySpec, SlotSpec, Spec, Specs
from node.samples import ID, NODE, STORE, USER, body

PAUSE_SECONDS = 0.05  # for each second that the agent would wait before it tries again


class Node:
    def __init__(self, work: Path, images: Path, gpus: str = "4xH100", **more: Any) -> None:
        number = zlib.crc32(f"{os.getpid()}{work}".encode())
        self.config = dataclasses.replace(
            LinuxConfig(
                paths=Paths(work / "state", work / "run", images, work / "etc"),
                hostname="test-node",
                simulate_gpus=gpus,
                prefix=f"gpuaas-test-{number:08x}",
                interfaces=f"gt{number % 4096:03x}",
                pool=f"198.19.{number % 16 * 16}.0/20",
                disk_mib=512,
            ),
            **more,
        )
        self.host = self.agent()

    def agent(self) -> LinuxHost:
        """What a fresh agent process has."""
        self.host = LinuxHost(self.config)
        self.host.prepare()
        assert self.host.inventory().ready, self.host.inventory().reason
        return self.host


class Keyed:
    """A person with a key."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "key"
        _output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._file))
        line = self._file.with_suffix(".pub").read_text().strip()
        self.spec = KeySpec(USER, line, _output("ssh-keygen", "-lf", str(self._file)).split()[1])

    def ssh(self, port: int, *command: str) -> list[str]:
        """The command line that logs in."""
        options = ["BatchMode=yes", "ConnectTimeout=10", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
        options = [part for option in options for part in ("-o", option)]
        return ["ssh", "-q", "-i", str(self._file), "-p", str(port), *options, "gpu@127.0.0.1", *command]


class World:
    """A node, its journal, and what is wanted of it: as in `node.samples`, on the real kernel."""

    def __init__(self, node: Node, person: Keyed) -> None:
        self.node = node
        self.person = person
        self.clock = VirtualClock()
        gpu = node.host.inventory().gpus[0].uuid
        self.body: AllocationBody = body(
            FakeHost(), 0, slots=[SlotSpec("sl-" + "a" * 16, [gpu])], keys=[person.spec], memory_mib=256
        )
        self._spec: Spec | None = None
        self.runner = self._runner(new=True)

    def agent(self) -> Runner:
        """A fresh agent goes on."""
        self.node.host.close()
        self.node.agent()
        self.runner = self._runner()
        return self.runner

    def want(self, body: AllocationBody | None) -> Condition:
        """After a release, it is another machine of this name."""
        before, revision = self._spec, self.runner.journal.revision
        if before is None:
            self._spec = Spec(ID, 1, 1, revision + 1, body)
        elif body is not None and before.body is None:
            self._spec = Spec(ID, before.incarnation + 1, 1, revision + 1, body)
        else:
            self._spec = Spec(ID, before.incarnation, before.generation + 1, revision + 1, body)
        self.runner.receive(Specs(STORE, revision, revision + 1, [self._spec]))
        return self.settle()

    def launch(self, **more: object) -> Condition:
        self.body = replace(self.body, **more)
        return self.want(self.body)

    def restart(self) -> Condition:
        return self.launch(restarts=self.body.restarts + 1)

    def release(self) -> Condition:
        return self.want(None)

    def settle(self, passes: int = 20) -> Condition:
        """Until it is as wanted, or said to have failed."""
        for _ in range(passes):
            self.runner.observe()
            for id in self.runner.wanted():
                self.runner.converge(id)
            condition = next(each for each in self.runner.conditions() if each.id == ID)
            if condition.state != "converging":
                return condition
            self.wait()
        return condition

    def wait(self) -> None:
        """Until the agent would try again."""
        self.reap()
        due = self.runner.due()
        if due is not None:
            time.sleep((due - self.clock.boottime()) * PAUSE_SECONDS)
            self.clock.advance(due - self.clock.boottime())

    def reap(self) -> None:
        """Orphans come to the test. The first process of a machine ends only after all that it had are waited for."""
        ours = range(self.body.uid_base, self.body.uid_base + IDS_PER_RANGE)
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            with suppress(OSError):
                if _uid(pid) in ours:
                    os.waitpid(int(pid), os.WNOHANG)

    def machine(self) -> Record:
        data = (self.node.config.paths.live(ID) / RECORD).read_bytes()
        return msgspec.json.decode(data, type=Record)

    def facts(self) -> list[tuple[str, str]]:
        return [(fact.kind, fact.data.get("reason", "")) for fact in self.runner.journal.facts()]

    def ssh(self, *command: str) -> str:
        return _output(*self.person.ssh(self.body.ssh_port, *command))

    def _runner(self, *, new: bool = False) -> Runner:
        journal = Journal(FileDisk(self.node.config.paths.state / "journal"), Ids(random.Random()))
        if new:
            journal.joined(NODE)
            journal.synced(STORE)
        return Runner(self.node.host, journal, self.clock)


def _uid(pid: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
