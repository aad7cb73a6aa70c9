"""What a node says its machines use, into the store. A transaction of its own, no event, no answer.

When: the node's own time, because it does not stretch with the network. A node whose clock is ahead of ours, or more
than a minute behind, is given the time of arrival instead: curves then show delays, but lie in the right place.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gpuaas.control.store import samples
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Node
from gpuaas.wire.node import Sample

CLOCK_TOLERANCE_SECONDS = 60.0
CLOSEST = timedelta(seconds=1)  # a node that talks more often than that fills no disk


def take(tx: Tx, node: Node, found: list[Sample]) -> None:
    """Dropped: what is not on this node, and what is not newer than the last one of the same machine."""
    last = samples.newest_times(tx, node.id, [sample.id for sample in found])
    rows = []
    for sample in found:
        if sample.id not in last:
            continue
        at, before = _when(sample.at, tx.now), last[sample.id]
        if before is None or at - before >= CLOSEST:
            rows.append(_row(sample, at, before))
            last[sample.id] = at
    samples.insert_samples(tx, rows)


def _when(said: float, now: datetime) -> datetime:
    behind = now.timestamp() - said
    return datetime.fromtimestamp(said, UTC) if 0 <= behind <= CLOCK_TOLERANCE_SECONDS else now


def _row(sample: Sample, at: datetime, before: datetime | None) -> dict[str, Any]:
    values = msgspec.to_builtins(sample)
    del values["id"]
    first = before is None or before.replace(second=0, microsecond=0) != at.replace(second=0, microsecond=0)
    return {**values, "allocation_id": sample.id, "at": at, "first_of_minute": first}
