"""Puts what there is to say into frames that are small enough to be taken."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gpuaas.wire.node import MAX_REPORT_BYTES, Condition, encode

# The rest is for the frame around the items.
BUDGET_BYTES = MAX_REPORT_BYTES - 1024

_Item = TypeVar("_Item", bound=msgspec.Struct)


def batches(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """The items in order, in lists that each fit into a frame."""
    batch: list[_Item] = []
    used = 0
    for item in items:
        size = len(encode(item)) + 1
        if batch and used + size > BUDGET_BYTES:
            yield batch
            batch, used = [], 0
        batch.append(item)
        used += size
    if batch:
        yield batch


def fitted(condition: Condition) -> Condition:
    """The condition, or what matters most of it when it alone would be too large for a frame."""
    for shorter in _shorter(condition):
        if len(encode(shorter)) < BUDGET_BYTES:
            return shorter
    return replace(condition, steps=[], failure=None, scrubs=[], host_key="")


def _shorter(condition: Condition) -> Iterator[Condition]:
    yield condition
    steps = [replace(step, log="", message=step.message[:200]) for step in condition.steps]
    scrubs = [replace(scrub, evidence=scrub.evidence[:80]) for scrub in condition.scrubs]
    runtimes = [replace(each, message=each.message[:200]) for each in condition.runtimes]
    condition = replace(condition, runtimes=runtimes)
    yield replace(condition, steps=steps, scrubs=scrubs)
    yield replace(condition, steps=[], scrubs=[replace(scrub, evidence="") for scrub in scrubs])
