"""What a modelled machine uses: totals that only grow while it runs, as a pure function of time."""

import math

from gpuaas.node.host.fake_state import Container
from gpuaas.wire.node import GpuReport, GpuSample, Sample

MIB = 1024 * 1024
IDLE_WATTS, BUSY_WATTS = 70.0, 620.0
DISK_LIMIT_BYTES = 100 * 1024 * MIB


def sample(id: str, box: Container, gpus: list[GpuReport], sessions: int, now: float) -> Sample:
    ran = max(0.0, now - box.started_at)
    limit = box.memory_mib * MIB
    return Sample(
        id=id,
        at=now,
        started_at=box.started_at,
        cpu_seconds=ran * box.cpus * 0.25,
        cpus=box.cpus,
        memory_bytes=limit * 3 // 10,
        memory_limit_bytes=limit,
        processes=12,
        sessions=sessions,
        disk_read_bytes=int(ran * 4 * MIB),
        disk_written_bytes=int(ran * MIB),
        disk_used_bytes=2 * 1024 * MIB,
        disk_limit_bytes=DISK_LIMIT_BYTES,
        network_received_bytes=int(ran * 300_000),
        network_sent_bytes=int(ran * 120_000),
        gpus=[_gpu(gpu, now) for gpu in gpus],
    )


def _gpu(gpu: GpuReport, now: float) -> GpuSample:
    # A slow wave, another one for each GPU, so that curves of a demonstration can be told apart.
    busy = 0.0 if gpu.trouble else 55.0 + 40.0 * math.sin(now / 30.0 + gpu.index)
    return GpuSample(
        gpu=gpu.uuid,
        busy_percent=round(busy, 1),
        memory_used_mib=gpu.memory_mib * 6 // 10,
        memory_mib=gpu.memory_mib,
        temperature_celsius=round(35.0 + busy * 0.4, 1),
        power_watts=round(IDLE_WATTS + (BUSY_WATTS - IDLE_WATTS) * busy / 100, 1),
        trouble=gpu.trouble,
    )
