"""The HTTP API's answers about what machines use and how they are."""

from datetime import datetime

from gpuaas.wire.api import Out


class GpuUseView(Out, frozen=True):
    """null: this GPU does not tell."""

    gpu: str
    busy_percent: float | None
    memory_used_mib: int | None
    memory_mib: int | None
    temperature_celsius: float | None
    power_watts: float | None
    trouble: str


class UseView(Out, frozen=True):
    """Rates are null where there is nothing to count them from: after a start, and after a gap."""

    at: datetime
    cpus_used: float | None
    cpu_percent: float | None
    memory_bytes: int
    memory_limit_bytes: int
    processes: int
    sessions: int
    oom_kills: int
    disk_read_bytes_per_second: float | None
    disk_written_bytes_per_second: float | None
    disk_used_bytes: int | None
    disk_limit_bytes: int | None
    network_received_bytes_per_second: float | None
    network_sent_bytes_per_second: float | None
    gpus: list[GpuUseView]


class MetricsView(Out, frozen=True):
    """A point for each step in which the machine was measured, oldest first."""

    allocation_id: str
    since: datetime
    step_seconds: int
    points: list[UseView]


class FindingView(Out, frozen=True):
    code: str
    level: str
    message: str


class HealthView(Out, frozen=True):
    """`status`: healthy, degraded, unhealthy, or unknown. `use`: the newest measurement, if there is a recent one."""

    allocation_id: str
    name: str
    project_id: str
    state: str
    status: str
    findings: list[FindingView]
    use: UseView | None


class HealthPage(Out, frozen=True):
    items: list[HealthView]
    next_cursor: str | None
