"""Looks at what running machines use, and hands it to the link. A sample that fails or is lost is a gap in a curve."""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from gpuaas.node.batch import BUDGET_BYTES
from gpuaas.node.link import Link
from gpuaas.node.runner import Runner
from gpuaas.wire.node import Sample, encode

log = logging.getLogger(__name__)

LONGEST_TROUBLE = 200


async def keep_sampling(runner: Runner, link: Link, every_seconds: float, say: Callable[[], None]) -> None:
    """Until cancelled. Nobody looks while nobody could be told: a node without a server costs nothing here."""
    while True:
        await asyncio.sleep(every_seconds)
        if link.state == "open":
            link.sampled(await asyncio.to_thread(samples, runner))
            say()


def samples(runner: Runner) -> list[Sample]:
    """Of every object that has been up, where it runs right now."""
    found = []
    for record in runner.journal.live():
        if record.applied is None:
            continue
        try:
            sample = runner.host.sample(record.id)
        except Exception as error:  # an outer loop: one machine that cannot be measured must not hide the others
            log.warning("could not sample %s: %s", record.id, error)
            continue
        if sample is not None:
            found.append(_fitted(sample))
    return found


def _fitted(sample: Sample) -> Sample:
    """Small enough for a frame, whatever a driver has to say about its GPUs."""
    short = replace(sample, gpus=[replace(gpu, trouble=gpu.trouble[:LONGEST_TROUBLE]) for gpu in sample.gpus])
    return short if len(encode(short)) < BUDGET_BYTES else replace(short, gpus=[])
