"""A node for tests of the control plane: a real key and the real frames, driven by hand over the store."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gpuaas.control.app import nodes as fleet
from gpuaas.control.link import session as link
from gpuaas.control.link.session import NONCE_PREFIX, Session
from gpuaas.control.store import identity, nodes
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.kit.ids import Ids
from gpuaas.wire.node import (
    PROTOCOL,
    Ack,
    Condition,
    Failure,
    Fenced,
    FromServer,
    GpuReport,
    Hello,
    Holding,
    Holdings,
    Inventory,
    Report,
    RuntimeReport,
    RuntimeSpec,
    Sample,
    Samples,
    Scrub,
    SlotProposal,
    Spec,
    Welcome,
)

NONCE = "5e" * 32


def join_token(tx: Tx, org: str | None = None, approve_slots: bool = True) -> str:
    """As an operator makes one."""
    maker = identity.users(tx, "", 1000)[0].id
    home = identity.org(tx, org) if org else None
    return nodes.insert_join_token(tx, maker, home.id if home else None, approve_slots, timedelta(hours=1))[1]


@dataclass
class Agent:
    """`store` is the replica it talks to; set another one to move it."""

    store: Store
    name: str
    gpus: int = 2
    model: str = "H100"
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    journal: str = field(default_factory=lambda: Ids().new("jn"))
    node_id: str = ""
    store_id: str | None = None
    revision: int = 0
    seq: int = 0
    session: Session | None = None
    specs: dict[str, Spec] = field(default_factory=dict)
    architecture: str = "amd64"
    runtimes: bool = True  # it can show some
    scrubs: bool = True  # it knows what a tombstone without a machine is for
    fetching: dict[str, int] = field(default_factory=dict)  # versions of bundles that are not here yet: percent
    refused: set[str] = field(default_factory=set)  # versions that cannot be shown
    gpu: dict[str, Any] = field(default_factory=dict)  # what its GPUs say besides

    @property
    def public_key(self) -> str:
        return self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def sign(self, message: bytes) -> str:
        return self.key.sign(message).hex()

    def join(self, token: str) -> "Agent":
        proof = self.sign(b"gpuaas-node-join:" + token.encode())
        self.node_id = self.store.transact(fleet.join, token, self.name, self.public_key, proof).id
        return self

    def inventory(self, **changes: Any) -> Inventory:
        uuids = [f"GPU-{self.name}-{n}" for n in range(self.gpus)]
        made = Inventory(
            hostname=self.name,
            address=f"{self.name}.example.org",
            cpus=64,
            memory_mib=65536,
            gpus=[
                GpuReport(uuid, n, **{"vendor": "nvidia", **self.gpu}, model=self.model, memory_mib=81920)
                for n, uuid in enumerate(uuids)
            ],
            slots=[SlotProposal(f"gpu-{n}", [uuid], 4, 4096) for n, uuid in enumerate(uuids)],
            architecture=self.architecture,
        )
        return msgspec.structs.replace(made, **changes)

    def hello(self, **changes: Any) -> Hello:
        made = Hello(
            protocol=PROTOCOL,
            node_id=self.node_id,
            signature=self.sign(NONCE_PREFIX + NONCE.encode()),
            agent_version="1.0",
            journal_incarnation=self.journal,
            boot_id="boot-1",
            store_id=self.store_id,
            revision=self.revision,
            inventory=self.inventory(),
            runtimes=self.runtimes,
            scrubs=self.scrubs,
        )
        return msgspec.structs.replace(made, **changes)

    def greet(self, **changes: Any) -> Welcome | Fenced:
        answer = self.store.transact(link.greet, self.hello(**changes), NONCE)
        if isinstance(answer, Fenced):
            return answer
        self.session, welcome = answer
        return welcome

    def connect(self, holdings: list[Holding] | None = None) -> "Agent":
        """Greets, and says what it holds where it is asked to."""
        welcome = self.greet()
        assert isinstance(welcome, Welcome), welcome
        self.store_id = welcome.store_id
        if not welcome.synced:
            self.revision = 0
            assert self.hold(holdings or []) == [Ack(self.seq)]
        return self

    def hold(self, objects: list[Holding], final: bool = True, **changes: Any) -> list[FromServer]:
        assert self.session is not None
        assert self.store_id is not None
        self.seq += 1
        return self.send(Holdings(self.seq, self.session.epoch, self.store_id, objects, final))

    def report(self, *conditions: Condition, **parts: Any) -> list[FromServer]:
        assert self.session is not None
        self.seq += 1
        return self.send(Report(self.seq, self.session.epoch, list(conditions), **parts))

    def sample(self, *samples: Sample) -> list[FromServer]:
        assert self.session is not None
        self.seq += 1
        return self.send(Samples(self.seq, self.session.epoch, list(samples)))

    def send(self, frame: Any) -> list[FromServer]:
        return self.store.transact(link.receive, self.session, frame)

    def pull(self) -> list[Spec]:
        """What is new, as the link would push it."""
        found: list[Spec] = []
        while frame := self.store.transact(link.outgoing, self.session, self.revision):
            self.revision = frame.upto
            found += frame.specs
        self.specs.update({spec.id: spec for spec in found})
        return found

    def settle(self, failing: frozenset[str] = frozenset()) -> None:
        """Carries out everything that is wanted and says so. Machines named in `failing` do not come up."""
        while found := self.pull():
            self.report(*(self._outcome(spec, failing) for spec in found))

    def _outcome(self, spec: Spec, failing: frozenset[str]) -> Condition:
        if spec.body is None:
            return condition(spec, "gone", scrubs=[Scrub(gpu.uuid, True) for gpu in self.inventory().gpus])
        if spec.body.name in failing:
            return condition(spec, "failed", failure=Failure("no_image", "The base image is missing."))
        return condition(spec, "ready", host_key="ssh-ed25519 AAAA", runtimes=self.stand(spec))

    def stand(self, spec: Spec) -> list[RuntimeReport]:
        """How the runtimes of a machine stand."""
        assert spec.body is not None
        return [self._stands(each) for each in spec.body.runtimes]

    def _stands(self, wanted: RuntimeSpec) -> RuntimeReport:
        if wanted.version in self.refused:
            return RuntimeReport(wanted.bundle, wanted.version, "failed", code="bad_image", message="It is damaged.")
        if wanted.version in self.fetching:
            percent = self.fetching[wanted.version]
            return RuntimeReport(wanted.bundle, wanted.version, "fetching", percent=percent)
        return RuntimeReport(wanted.bundle, wanted.version, "ready", current=wanted.current)


def sample(id: str, at: float, **more: Any) -> Sample:
    """Of a machine that does next to nothing."""
    modest: dict[str, Any] = {"started_at": 1.0, "cpu_seconds": 0.0, "cpus": 4.0, "memory_bytes": 2**30}
    others = {"memory_limit_bytes": 2**32, "processes": 3, "sessions": 0}
    return Sample(id=id, at=at, **{**modest, **others, **more})


def condition(spec: Spec, state: str, **parts: Any) -> Condition:
    return Condition(spec.id, spec.incarnation, spec.generation, state, **parts)
