"""Machines of the fleet, the parts of them that can be given out, and what is sold."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    org_id: str | None
    state: str
    epoch: int
    revision: int
    synced_store_id: str | None
    approve_slots: bool
    inventory: dict[str, Any] | None
    agent_version: str
    created_at: datetime
    last_seen_at: datetime | None


@dataclass(frozen=True)
class Slot:
    id: str
    node_id: str
    name: str
    gpu_model: str
    gpus: tuple[str, ...]
    cpus: int
    memory_mib: int
    numa: int
    state: str
    reason: str
    link_group: int | None
    card: str | None  # the GPU that its MIG instances are parts of


@dataclass(frozen=True)
class Hold:
    """Who has a slot. What is not a machine is the scrub of one that was returned."""

    holder_id: str
    state: str  # of the claim


@dataclass(frozen=True)
class LastScrub:
    """How a slot was cleared after somebody, or when it was returned, and what its node says that proves it."""

    holder_id: str
    at: datetime
    evidence: list[dict[str, Any]]  # of each GPU: gpu, clean, evidence


@dataclass(frozen=True)
class Stray:
    """A machine that a node has, and this database, restored from an older copy, does not know."""

    node_id: str
    id: str
    incarnation: int
    generation: int
    slots: tuple[str, ...]
    seen_at: datetime
    removed_at: datetime | None  # an operator has asked for it; the node has not said that it is gone


@dataclass(frozen=True)
class Offer:
    id: str
    slug: str
    name: str
    gpu_model: str
    gpu_count: int
    cpus: int
    memory_mib: int
    isolation: str
    realisations: tuple[str, ...]
    price_micros_per_hour: int
    enabled: bool
    created_at: datetime
