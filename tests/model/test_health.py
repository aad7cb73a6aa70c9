"""What is found for which machine."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuaas.model.allocation import Allocation
from gpuaas.model.health import Seen, judge
from gpuaas.model.lifecycle import ALLOCATION
from gpuaas.model.sample import GpuUse
from model.test_metrics import MODEST

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ACTIVE = Allocation(
    *("al-x", "og-x", "pj-x", "m", "of-x", "us-x", "gr-x", "active", None, 1, "nd-x", "gpu_slice", 0),
    *(1, 1, 1, 1, 1, 0, "", None, None, NOW - timedelta(hours=2), NOW - timedelta(hours=1), None, None),
)
SAMPLE = replace(MODEST, at=NOW - timedelta(seconds=5))
WELL = Seen(NOW, ACTIVE, NOW, SAMPLE, ())


def found(seen: Seen) -> tuple[str, list[str]]:
    health = judge(seen)
    return health.status, [finding.code for finding in health.findings]


def sampled(**more: Any) -> Seen:
    return replace(WELL, sample=replace(SAMPLE, **more))


def test_a_machine_that_is_well_has_no_findings() -> None:
    assert found(WELL) == ("healthy", [])


@pytest.mark.parametrize(
    ("use", "status", "code"),
    [
        ({"memory_bytes": 899}, "healthy", None),
        ({"memory_bytes": 900}, "degraded", "memory_near_limit"),
        ({"memory_bytes": 5, "memory_limit_bytes": 0}, "healthy", None),
        ({"oom_kills": 2}, "degraded", "oom_kills"),
        ({"disk_used_bytes": 89, "disk_limit_bytes": 100}, "healthy", None),
        ({"disk_used_bytes": 90, "disk_limit_bytes": 100}, "degraded", "disk_nearly_full"),
        ({"disk_used_bytes": 98, "disk_limit_bytes": 100}, "unhealthy", "disk_nearly_full"),
        ({"disk_used_bytes": 98, "disk_limit_bytes": None}, "healthy", None),
        ({"gpus": (GpuUse("GPU-1", trouble="XID 79"), GpuUse("GPU-2"))}, "unhealthy", "gpu_trouble"),
        ({"sessions": 2}, "healthy", "sessions"),
    ],
)
def test_what_it_uses(use: dict[str, Any], status: str, code: str | None) -> None:
    assert found(sampled(**use)) == (status, [code] if code else [])


def test_an_old_sample_says_only_that_it_is_old() -> None:
    assert found(sampled(at=NOW - timedelta(seconds=61), oom_kills=9)) == ("unknown", ["no_recent_sample"])
    assert found(replace(WELL, sample=None)) == ("unknown", ["no_recent_sample"])
    new = replace(ACTIVE, active_at=NOW - timedelta(seconds=3))
    health = judge(replace(WELL, sample=None, allocation=new))
    assert "only just started" in health.findings[0].message


def test_a_silent_node_is_worse_than_what_it_last_said() -> None:
    assert found(replace(WELL, node_seen_at=NOW - timedelta(seconds=16))) == ("unhealthy", ["node_silent"])
    lost = replace(WELL, allocation=replace(ACTIVE, state="unreachable", previous_state="active"))
    assert found(lost) == ("unhealthy", ["node_silent"])


def test_a_gpu_that_was_set_aside_is_told_once() -> None:
    said = sampled(gpus=(GpuUse("GPU-1", trouble="XID 79"),))
    assert found(replace(said, gpu_troubles=("GPU-1: XID 79",))) == ("unhealthy", ["gpu_trouble"])
    assert found(replace(WELL, gpu_troubles=("GPU-1: XID 79",))) == ("unhealthy", ["gpu_trouble"])


def test_every_state_has_a_verdict() -> None:
    expected = {"active": "healthy", "restarting": "degraded", "failed": "unhealthy", "unreachable": "unhealthy"}
    for state in ALLOCATION.states:
        allocation = replace(ACTIVE, state=state, failure_message="The disk broke.")
        assert judge(replace(WELL, allocation=allocation, sample=None if state != "active" else SAMPLE)).status == (
            expected.get(state, "unknown")
        ), state


def test_the_worst_finding_decides() -> None:
    bad = sampled(memory_bytes=999, sessions=1, disk_used_bytes=99, disk_limit_bytes=100)
    assert found(bad) == ("unhealthy", ["memory_near_limit", "disk_nearly_full", "sessions"])
