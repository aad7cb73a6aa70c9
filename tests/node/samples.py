"""Specs to test with, and the smallest server there is: it hands out specs and starts agents on one machine."""

import random

from msgspec.structs import replace

from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.ids import Ids
from gpuaas.node.host.fake import FakeDisk, FakeHost
from gpuaas.node.journal import Journal
from gpuaas.node.runner import Runner
from gpuaas.wire.node import AllocationBody, Condition, KeySpec, SlotSpec, Spec, Specs

ids = Ids(random.Random(7))
STORE, OTHER_STORE, NODE = ids.new("st"), ids.new("st"), ids.new("no")
ORG, PROJECT, USER = ids.new("or"), ids.new("pr"), ids.new("us")
ID, OTHER_ID = ids.new("al"), ids.new("al")


def key(fingerprint: str = "SHA256:one", *, leased: bool = False) -> KeySpec:
    return KeySpec(USER, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 someone@somewhere", fingerprint, leased)


def body(host: FakeHost, seat: int = 0, gpus: int = 1, restarts: int = 0, **more: object) -> AllocationBody:
    uuids = host.gpu_uuids()[seat * gpus : seat * gpus + gpus]
    made = AllocationBody(
        name=f"machine-{seat}",
        org_id=ORG,
        project_id=PROJECT,
        slots=[SlotSpec(f"sl-{'abcdefgh'[i]}{'a' * 15}", [gpu]) for i, gpu in enumerate(uuids)],
        cpus=8,
        memory_mib=1024,
        seat=seat,
        ssh_port=20000 + seat,
        uid_base=65536 * (seat + 2),
        keys=[key()],
        restarts=restarts,
    )
    return replace(made, **more)


class World:
    """One machine and what is wanted of it. `agent()` is a fresh agent process on it."""

    def __init__(self, gpus: str = "8xH100") -> None:
        self.host = FakeHost(gpus)
        self.disk = FakeDisk()
        self.clock = VirtualClock()
        self.ids = Ids(random.Random(1))
        self.specs: dict[str, Spec] = {}
        self.revision = 0
        self.runner = self.agent(new=True)

    def agent(self, *, new: bool = False) -> Runner:
        journal = Journal(self.disk, self.ids)
        if new:
            journal.joined(NODE)
            journal.synced(STORE)
        self.runner = Runner(self.host, journal, self.clock)
        return self.runner

    def want(self, id: str, body: AllocationBody | None, generation: int | None = None, incarnation: int = 1) -> Spec:
        self.revision += 1
        before = self.specs.get(id)
        number = generation if generation is not None else (before.generation + 1 if before else 1)
        self.specs[id] = Spec(id, incarnation, number, self.revision, body)
        return self.specs[id]

    def tell(self) -> None:
        """What a server does on a heartbeat: everything after the agent's revision."""
        base = self.runner.journal.revision
        news = [spec for spec in self.specs.values() if spec.revision > base]
        self.runner.receive(Specs(STORE, base, self.revision, news))

    def settle(self, passes: int = 200) -> None:
        """Runs passes, and time, until nothing is wanted."""
        self.tell()
        for _ in range(passes):
            self.runner.observe()
            wanted = self.runner.wanted()
            for id in wanted:
                self.runner.converge(id)
            due = self.runner.due()
            if not wanted and due is None:
                return
            if not wanted and due is not None:
                self.clock.advance(due - self.clock.boottime())
        raise AssertionError(f"not quiet: {self.runner.wanted()} {self.runner.conditions()}")

    def launch(self, id: str = ID, seat: int = 0, **more: object) -> Condition:
        self.want(id, body(self.host, seat, **more))
        self.settle()
        return self.condition(id)

    def condition(self, id: str = ID) -> Condition:
        return next(condition for condition in self.runner.conditions() if condition.id == id)
