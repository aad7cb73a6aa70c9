"""What a machine was seen to use at one moment. Totals count from its last start."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class GpuUse:
    """None: this GPU does not tell."""

    gpu: str
    busy_percent: float | None = None
    memory_used_mib: int | None = None
    memory_mib: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    trouble: str = ""


@dataclass(frozen=True)
class Sample:
    allocation_id: str
    at: datetime
    started_at: float  # by the node's clock; another value means that the totals began again
    cpu_seconds: float
    cpus: float
    memory_bytes: int
    memory_limit_bytes: int
    processes: int
    sessions: int
    oom_kills: int
    disk_read_bytes: int
    disk_written_bytes: int
    disk_used_bytes: int | None
    disk_limit_bytes: int | None
    network_received_bytes: int
    network_sent_bytes: int
    gpus: tuple[GpuUse, ...]
