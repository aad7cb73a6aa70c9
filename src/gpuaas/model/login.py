"""Somebody on a machine: one SSH session, as the node told of it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Login:
    node_id: str
    allocation_id: str
    session: str  # the node's own name for it, unique among the sessions of one machine
    user_id: str | None  # None: nobody that this control plane knows
    fingerprint: str
    source: str
    heard_at: datetime  # when this control plane first heard of it
    opened_at: datetime | None  # None: only its end was told so far
    closed_at: datetime | None
    close_reason: str | None
