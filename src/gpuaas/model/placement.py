"""What placement looks at, and what it answers. Built from one snapshot of the store."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Kept:
    """A time in which a slot belongs to a reservation."""

    reservation_id: str
    starts_at: datetime
    free_at: datetime

    def meets(self, starts_at: datetime | None, free_at: datetime | None) -> bool:
        """None: already, or for ever."""
        begins_before_it_is_over = starts_at is None or starts_at < self.free_at
        return begins_before_it_is_over and (free_at is None or self.starts_at < free_at)


@dataclass(frozen=True)
class SlotView:
    id: str
    node_id: str
    gpu_model: str
    gpu_count: int
    gpus: tuple[str, ...]
    cpus: int
    memory_mib: int
    numa: int
    state: str
    claimed: bool
    drained: bool = False
    link_group: int | None = None
    card: str | None = None  # the GPU that its MIG instances are parts of
    alone: bool = False  # whoever has claimed it has the whole node: what else there is, or will be, is nobody's
    kept: tuple[Kept, ...] = ()

    @property
    def linked(self) -> str:
        """The same for slots whose GPUs are linked directly, or are parts of one; its own for all others."""
        return self.card or (self.id if self.link_group is None else f"link group {self.link_group}")

    @property
    def free(self) -> bool:
        """For anybody, for any time: what the counts of nodes count."""
        return self.state == "approved" and not self.claimed and not self.drained and not self.kept


@dataclass(frozen=True)
class NodeView:
    id: str
    name: str
    org_id: str | None  # a tenant's own pool
    state: str
    ready: bool  # its doctor passed
    reason: str
    slots: tuple[SlotView, ...]
    drained: bool = False
    held: str | None = None  # for the group that is first in line
    seat: int | None = None  # the lowest that is free, where one is wanted


@dataclass(frozen=True)
class Wanted:
    """One request: `count` machines of one offer, all or none."""

    org_id: str
    gpu_model: str
    gpu_count: int
    cpus: int
    memory_mib: int
    isolation: str
    realisations: tuple[str, ...]
    count: int = 1
    group_id: str | None = None  # that has waited, and may use what is held for it
    starts_at: datetime | None = None  # None: now
    free_at: datetime | None = None  # when its slots are free again at the latest; None: nobody knows
    unfit: Mapping[str, str] = field(default_factory=dict)  # nodes that cannot use its runtime, and why

    @property
    def needs_whole_node(self) -> bool:
        return self.isolation == "dedicated_node" or self.realisations == ("baremetal",)


@dataclass(frozen=True)
class Seat:
    """One machine of a plan."""

    node_id: str
    slots: tuple[SlotView, ...]
    realisation: str
    node_name: str = ""  # for operators only

    @property
    def gpus(self) -> int:
        return sum(slot.gpu_count for slot in self.slots)

    @property
    def link_groups(self) -> int:
        """How many groups of linked GPUs it has a part of; one that is linked to no other is a group of its own."""
        return len({slot.linked for slot in self.slots})

    @property
    def numa_domains(self) -> int:
        return len({slot.numa for slot in self.slots})


@dataclass(frozen=True)
class Reason:
    code: str
    message: str
    count: int
    nodes: tuple[str, ...] = ()  # for operators only


@dataclass(frozen=True)
class Plan:
    """`seats` is empty exactly when the request does not fit; `reasons` then say why."""

    seats: tuple[Seat, ...]
    reasons: tuple[Reason, ...] = field(default=())
    earliest: datetime | None = None  # when it would fit, if that is known
    runtime: str | None = None  # the version that was asked for with it

    @property
    def fits(self) -> bool:
        return bool(self.seats)


def most_together(slots: Iterable[SlotView]) -> int:
    """GPUs of the NUMA domain that has most of them among these slots."""
    groups: Counter[int] = Counter()
    for slot in slots:
        groups[slot.numa] += slot.gpu_count
    return max(groups.values(), default=0)


def most_linked(slots: Iterable[SlotView]) -> int:
    """GPUs of the group of linked ones that has most of them among these slots."""
    groups: Counter[str] = Counter()
    for slot in slots:
        groups[slot.linked] += slot.gpu_count
    return max(groups.values(), default=0)
