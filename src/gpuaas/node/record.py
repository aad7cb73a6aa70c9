"""What the journal remembers about one object. Fields that a newer agent wrote are passed over, not refused."""

from msgspec import Struct

from gpuaas.wire.node import Failure, Holding, Id, Scrub, Spec

Version = tuple[int, int]  # (incarnation, generation)


class Intent(Struct, frozen=True):
    """All that may exist on the host for an object; durable before any of it is made. Only ever grows."""

    generation: int
    restarts: int
    slots: list[str]
    gpus: list[str]
    ssh_port: int
    uid_base: int


class Applied(Struct, frozen=True):
    """What was last seen ready, and in which boot."""

    incarnation: int
    generation: int
    restarts: int
    boot_id: str
    config: str

    @property
    def version(self) -> Version:
        return self.incarnation, self.generation


class Verdict(Struct, frozen=True):
    """A version that is not tried again: it was refused as a spec, or it failed and was never good."""

    incarnation: int
    generation: int
    failure: Failure

    @property
    def version(self) -> Version:
        return self.incarnation, self.generation


class Record(Struct, frozen=True):
    """`lineage` names the sync with a server after which the spec came: generations compare only within one."""

    id: Id
    lineage: str
    spec: Spec | None = None  # the newest that is valid
    failed: Verdict | None = None
    intent: Intent | None = None
    applied: Applied | None = None
    down: bool = False  # that it does not run is no news: it is on record, or a restart is wanted
    deaths: int = 0
    gone: bool = False
    scrubs: list[Scrub] = []
    repairs: int = 0  # the images of its runtimes have been read again for this count of the spec's
    told: str = ""  # the lineage that acknowledged `gone`

    @property
    def version(self) -> Version:
        spec = (self.spec.incarnation, self.spec.generation) if self.spec else (0, 0)
        return max(spec, self.failed.version) if self.failed else spec

    @property
    def poisoned(self) -> bool:
        return self.failed is not None and self.failed.version == self.version

    @property
    def was_good(self) -> bool:
        """Its present version has been ready before."""
        return self.applied is not None and self.applied.version == self.version

    @property
    def holding(self) -> Holding:
        incarnation, generation = self.version
        restarts = self.intent.restarts if self.intent else 0
        slots = self.intent.slots if self.intent else []
        dirty = [scrub.gpu for scrub in self.scrubs if not scrub.clean]
        seat = self.spec.body.seat if self.spec and self.spec.body and not self.gone else None
        gpus = self.intent.gpus if self.intent else []
        return Holding(self.id, incarnation, generation, restarts, slots, self.gone, dirty, seat, gpus)
