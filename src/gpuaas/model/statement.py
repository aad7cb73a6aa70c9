"""What a month came to. Closed once nothing of it can change; derived again at any time, with the same hash."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from gpuaas.model.usage import Line


@dataclass(frozen=True)
class Statement:
    id: str
    org_id: str
    project_id: str
    starts_at: datetime
    ends_at: datetime
    lines: int
    amount_micros: int
    hash: bytes
    created_at: datetime


def digest(project_id: str, begin: datetime, end: datetime, lines: Sequence[Line]) -> bytes:
    """Of every field of every line, in their order."""
    content = [project_id, begin.timestamp(), end.timestamp(), [_plain(line) for line in lines]]
    return hashlib.sha256(msgspec.json.encode(content)).digest()


def _plain(line: Line) -> dict[str, object]:
    """Times as numbers: the same whatever time zone a database session has. What was held has no part in the price."""
    times = {"started_at": line.started_at.timestamp(), "ended_at": line.ended_at.timestamp()}
    return {name: value for name, value in {**line.__dict__, **times}.items() if name != "gpus_held"}
