"""`GET /metrics`: the fleet in Prometheus' text format 0.0.4, for operators."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from litestar import Response, get

from gpuaas.control.app.metrics import Fleet, watched
from gpuaas.control.http.endpoint import Req, read_as
from gpuaas.control.store.fleet import Measured
from gpuaas.model.lifecycle import ALLOCATION, NODE, SLOT, Lifecycle
from gpuaas.model.sample import GpuUse, Sample

MEDIA_TYPE = "text/plain; version=0.0.4"  # Litestar adds the charset
MIB = 1024 * 1024

Labels = Mapping[str, str]


class OfMachine(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[Sample], float | None]


class OfGpu(NamedTuple):
    name: str
    help: str
    value: Callable[[GpuUse], float | None]


# Totals are counters that begin again when a machine restarts: Prometheus knows what to do with that.
MACHINES = (
    OfMachine("cpu_seconds_total", "counter", "CPU time used since its start", lambda s: s.cpu_seconds),
    OfMachine("cpu_limit", "gauge", "CPUs it may use at once", lambda s: s.cpus),
    OfMachine("memory_bytes", "gauge", "Memory in use", lambda s: s.memory_bytes),
    OfMachine("memory_limit_bytes", "gauge", "Memory it may use", lambda s: s.memory_limit_bytes),
    OfMachine("processes", "gauge", "Processes in it", lambda s: s.processes),
    OfMachine("sessions", "gauge", "Open sessions", lambda s: s.sessions),
    OfMachine("oom_kills_total", "counter", "Times that memory ran out since its start", lambda s: s.oom_kills),
    OfMachine("disk_read_bytes_total", "counter", "Read from disk", lambda s: s.disk_read_bytes),
    OfMachine("disk_written_bytes_total", "counter", "Written to disk", lambda s: s.disk_written_bytes),
    OfMachine("disk_used_bytes", "gauge", "Disk in use", lambda s: s.disk_used_bytes),
    OfMachine("disk_limit_bytes", "gauge", "Disk it may use", lambda s: s.disk_limit_bytes),
    OfMachine("network_received_bytes_total", "counter", "Received", lambda s: s.network_received_bytes),
    OfMachine("network_sent_bytes_total", "counter", "Sent", lambda s: s.network_sent_bytes),
    OfMachine("sampled_seconds", "gauge", "When it was measured, in seconds since 1970", lambda s: s.at.timestamp()),
)
GPUS = (
    OfGpu("busy_percent", "How busy it is", lambda g: g.busy_percent),
    OfGpu("memory_used_bytes", "Memory in use", lambda g: _bytes(g.memory_used_mib)),
    OfGpu("memory_bytes", "Memory it has", lambda g: _bytes(g.memory_mib)),
    OfGpu("temperature_celsius", "Temperature", lambda g: g.temperature_celsius),
    OfGpu("power_watts", "Power drawn", lambda g: g.power_watts),
    OfGpu("trouble", "1 if it is not well", lambda g: 1 if g.trouble else 0),
)


@get(
    "/metrics",
    opt={"action": "platform.metrics"},
    sync_to_thread=True,
    media_type="text/plain",
    summary="The fleet for Prometheus (operators)",
)
def scrape(request: Req) -> Response[str]:
    return Response(read_as(request, lambda tx, caller: exposition(watched(tx, caller))), media_type=MEDIA_TYPE)


def exposition(fleet: Fleet) -> str:
    return "".join(f"{line}\n" for line in _lines(fleet))


def _lines(fleet: Fleet) -> Iterator[str]:
    yield from _states("gpuaas_nodes", "Nodes by state", NODE, fleet.nodes)
    yield from _family("gpuaas_agents_linked", "gauge", "Agents heard of just now", [({}, fleet.agents_linked)])
    yield from _states("gpuaas_slots", "Slots by state", SLOT, fleet.slots)
    yield from _states("gpuaas_allocations", "Allocations by state", ALLOCATION, fleet.allocations)
    labelled = [(_labels(item), item.sample) for item in fleet.measured]
    for machine in MACHINES:
        values = [(labels, machine.value(sample)) for labels, sample in labelled]
        yield from _family(f"gpuaas_allocation_{machine.name}", machine.kind, machine.help, values)
    for gpu in GPUS:
        used = [({**labels, "gpu": one.gpu}, gpu.value(one)) for labels, sample in labelled for one in sample.gpus]
        yield from _family(f"gpuaas_allocation_gpu_{gpu.name}", "gauge", gpu.help, used)


def _states(name: str, help: str, lifecycle: Lifecycle, counted: Mapping[str, int]) -> Iterator[str]:
    """Also those that are zero: an alert must be able to tell nothing from none."""
    living = sorted(lifecycle.states - lifecycle.ends)
    return _family(name, "gauge", help, [({"state": state}, counted.get(state, 0)) for state in living])


def _family(name: str, kind: str, help: str, values: Iterable[tuple[Labels, float | None]]) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        if value is not None:
            said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            yield f"{name}{{{said}}} {value}" if said else f"{name} {value}"


def _labels(item: Measured) -> Labels:
    names = {"name": item.name, "org": item.org, "project": item.project, "node": item.node}
    return {"allocation": item.sample.allocation_id, **names}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB
