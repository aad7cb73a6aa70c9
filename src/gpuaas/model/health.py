"""Whether a machine is well, in words that its user can act on. Each check looks at one thing and may say something."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuaas.model.allocation import Allocation
from gpuaas.model.sample import Sample

HEALTHY, UNKNOWN, DEGRADED, UNHEALTHY = "healthy", "unknown", "degraded", "unhealthy"
WORSE = (HEALTHY, UNKNOWN, DEGRADED, UNHEALTHY)
RECENT = timedelta(seconds=60)
NODE_SILENCE = timedelta(seconds=15)
NEAR = 0.9
FULL = 0.98


@dataclass(frozen=True)
class Finding:
    code: str
    level: str  # what it makes of the machine; `healthy`: only good to know
    message: str


@dataclass(frozen=True)
class Seen:
    """All that is known about a machine at one moment."""

    now: datetime
    allocation: Allocation
    node_seen_at: datetime | None
    sample: Sample | None  # the newest
    gpu_troubles: tuple[str, ...]  # what its node, and whoever set its slots aside, say

    @property
    def recent(self) -> Sample | None:
        """Too old a sample says nothing about now."""
        return self.sample if self.sample and self.now - self.sample.at <= RECENT else None


@dataclass(frozen=True)
class Health:
    status: str
    findings: tuple[Finding, ...]


def judge(seen: Seen) -> Health:
    findings = tuple(finding for check in CHECKS for finding in check(seen))
    return Health(max((finding.level for finding in findings), key=WORSE.index, default=HEALTHY), findings)


def _state(seen: Seen) -> Iterator[Finding]:
    allocation = seen.allocation
    match allocation.state:
        case "active":
            return
        case "failed":
            why = allocation.failure_message or "It stopped."
            yield Finding("failed", UNHEALTHY, f"The machine failed: {why}")
        case "unreachable":
            pass  # its node's silence says more
        case "restarting":
            yield Finding("not_active", DEGRADED, "The machine is being restarted.")
        case state:
            yield Finding("not_active", UNKNOWN, f"The machine is {state}; there is nothing to look at.")


def _node(seen: Seen) -> Iterator[Finding]:
    if seen.allocation.node_id is None or seen.allocation.state == "released":
        return
    silent = seen.node_seen_at is None or seen.now - seen.node_seen_at > NODE_SILENCE
    if seen.allocation.state == "unreachable" or silent:
        since = f" since {seen.node_seen_at:%Y-%m-%d %H:%M:%S} UTC" if seen.node_seen_at else ""
        yield Finding("node_silent", UNHEALTHY, f"Its node has been silent{since}. The machine may well be running.")


def _samples(seen: Seen) -> Iterator[Finding]:
    active_at = seen.allocation.active_at
    if seen.allocation.state != "active" or seen.recent is not None or active_at is None:
        return
    if seen.sample is not None:
        age = (seen.now - seen.sample.at).total_seconds()
        yield Finding("no_recent_sample", UNKNOWN, f"Nobody could measure it for {age:.0f} seconds.")
    elif seen.now - active_at > RECENT:
        yield Finding("no_recent_sample", UNKNOWN, "Nobody has measured it yet.")
    else:
        yield Finding("no_recent_sample", UNKNOWN, "It has only just started; the first measurement is on its way.")


def _memory(seen: Seen) -> Iterator[Finding]:
    sample = seen.recent
    if sample is None:
        return
    if sample.memory_limit_bytes and sample.memory_bytes >= NEAR * sample.memory_limit_bytes:
        share = 100 * sample.memory_bytes / sample.memory_limit_bytes
        yield Finding("memory_near_limit", DEGRADED, f"It uses {share:.0f} % of its memory.")
    if sample.oom_kills:
        times = "once" if sample.oom_kills == 1 else f"{sample.oom_kills} times"
        said = f"Memory ran out {times} since its last start, and the kernel killed processes."
        yield Finding("oom_kills", DEGRADED, said)


def _disk(seen: Seen) -> Iterator[Finding]:
    sample = seen.recent
    if sample is None or not sample.disk_limit_bytes or sample.disk_used_bytes is None:
        return
    share = sample.disk_used_bytes / sample.disk_limit_bytes
    if share >= NEAR:
        yield Finding("disk_nearly_full", UNHEALTHY if share >= FULL else DEGRADED, f"Its disk is {share:.0%} full.")


def _gpus(seen: Seen) -> Iterator[Finding]:
    said = [f"{gpu.gpu}: {gpu.trouble}" for gpu in (seen.recent.gpus if seen.recent else ()) if gpu.trouble]
    for trouble in dict.fromkeys([*said, *seen.gpu_troubles]):
        yield Finding("gpu_trouble", UNHEALTHY, f"A GPU is not well. {trouble}")


def _sessions(seen: Seen) -> Iterator[Finding]:
    if seen.recent and seen.recent.sessions:
        people = "1 session is" if seen.recent.sessions == 1 else f"{seen.recent.sessions} sessions are"
        yield Finding("sessions", HEALTHY, f"{people} open.")


CHECKS: tuple[Callable[[Seen], Iterator[Finding]], ...] = (_state, _node, _samples, _gpus, _memory, _disk, _sessions)
