"""From samples to curves: totals become rates, and many samples become one point for each step.

Rates and how busy a GPU was are averages over the step; memory, temperature and what is only looked at are the highest
or the newest of it. Nothing is made up: where totals began again, or nobody looked for a while, there is no rate.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

from gpuaas.model.sample import GpuUse, Sample

LONGEST_GAP_SECONDS = 180.0  # samples further apart than that have no rate between them

Span = tuple[Sample, Sample]
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Point:
    at: datetime
    cpus_used: float | None
    cpu_percent: float | None  # of what it may use
    memory_bytes: int
    memory_limit_bytes: int
    processes: int
    sessions: int
    oom_kills: int  # since its last start
    disk_read_bytes_per_second: float | None
    disk_written_bytes_per_second: float | None
    disk_used_bytes: int | None
    disk_limit_bytes: int | None
    network_received_bytes_per_second: float | None
    network_sent_bytes_per_second: float | None
    gpus: tuple[GpuUse, ...]


def points(samples: Sequence[Sample], begin: datetime, step_seconds: int) -> list[Point]:
    """One for each step that has samples, oldest first, at the beginning of the step.

    `samples` in order; one from before `begin` only gives the first rate something to start from.
    """
    spans: dict[int, list[Span]] = defaultdict(list)
    steps: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.at >= begin:
            steps[_step(sample, step_seconds)].append(sample)
    for before, sample in pairwise(samples):
        if _is_one_run(before, sample):
            spans[_step(sample, step_seconds)].append((before, sample))
    return [_point(datetime.fromtimestamp(step, UTC), steps[step], spans[step]) for step in sorted(steps)]


def newest(samples: Sequence[Sample]) -> Point | None:
    """The last one as it is, with rates since the one before."""
    if not samples:
        return None
    spans = [(before, sample) for before, sample in pairwise(samples[-2:]) if _is_one_run(before, sample)]
    return _point(samples[-1].at, samples[-1:], spans)


def _step(sample: Sample, step_seconds: int) -> int:
    return int(sample.at.timestamp() // step_seconds) * step_seconds


def _is_one_run(before: Sample, sample: Sample) -> bool:
    apart = (sample.at - before.at).total_seconds()
    return before.started_at == sample.started_at and 0 < apart <= LONGEST_GAP_SECONDS


def _point(at: datetime, samples: Sequence[Sample], spans: Sequence[Span]) -> Point:
    last = samples[-1]
    cpus_used = _rate(spans, "cpu_seconds")
    return Point(
        at=at,
        cpus_used=cpus_used,
        cpu_percent=round(100 * cpus_used / last.cpus, 2) if cpus_used is not None and last.cpus else None,
        memory_bytes=max(sample.memory_bytes for sample in samples),
        memory_limit_bytes=last.memory_limit_bytes,
        processes=max(sample.processes for sample in samples),
        sessions=max(sample.sessions for sample in samples),
        oom_kills=last.oom_kills,
        disk_read_bytes_per_second=_rate(spans, "disk_read_bytes"),
        disk_written_bytes_per_second=_rate(spans, "disk_written_bytes"),
        disk_used_bytes=_highest(sample.disk_used_bytes for sample in samples),
        disk_limit_bytes=last.disk_limit_bytes,
        network_received_bytes_per_second=_rate(spans, "network_received_bytes"),
        network_sent_bytes_per_second=_rate(spans, "network_sent_bytes"),
        gpus=tuple(_gpu(gpu, samples) for gpu in last.gpus),
    )


def _rate(spans: Sequence[Span], total: str) -> float | None:
    seconds = sum((sample.at - before.at).total_seconds() for before, sample in spans)
    # A total that shrinks within one run (an interface was made anew) says nothing about what was used.
    grown = sum(max(0.0, getattr(sample, total) - getattr(before, total)) for before, sample in spans)
    return round(grown / seconds, 3) if seconds else None


def _gpu(last: GpuUse, samples: Sequence[Sample]) -> GpuUse:
    seen = [gpu for sample in samples for gpu in sample.gpus if gpu.gpu == last.gpu]
    return GpuUse(
        gpu=last.gpu,
        busy_percent=_mean(gpu.busy_percent for gpu in seen),
        memory_used_mib=_highest(gpu.memory_used_mib for gpu in seen),
        memory_mib=last.memory_mib,
        temperature_celsius=_highest(gpu.temperature_celsius for gpu in seen),
        power_watts=_mean(gpu.power_watts for gpu in seen),
        trouble=next((gpu.trouble for gpu in reversed(seen) if gpu.trouble), ""),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return round(sum(told) / len(told), 2) if told else None


def _highest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)
