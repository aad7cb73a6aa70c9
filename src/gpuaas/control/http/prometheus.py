"""`GET /metrics`: the fleet in Prometheus' text format 0.0.4, for operators."""

import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from litestar import Response, get

from gpuaas.control.app.metrics import Fleet, scraped, watched
from gpuaas.control.http.endpoint import Req, bearer, correlation_of, read_as, store_of
from gpuaas.control.store.fleet import USES, Measured
from gpuaas.control.store.transaction import Store
from gpuaas.kit.errors import Problem
from gpuaas.kit.meters import AGE
from gpuaas.model.lifecycle import ALLOCATION, NODE, SLOT, Lifecycle
from gpuaas.model.sample import GpuUse, Sample

log = logging.getLogger(__name__)

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
    store = store_of(request)
    if not _is_scraper(request):
        fleet: Fleet | None = read_as(request, watched)
    else:
        try:
            fleet = store.transact(scraped, correlation_id=correlation_of(request))
        except Problem as problem:  # what the server knows about itself is worth most when the database is away
            log.warning("scraped without the database: %s", problem.detail or problem.message)
            fleet = None
    return Response("".join((exposition(fleet) if fleet else "", own(store, fleet is not None))), media_type=MEDIA_TYPE)


def _is_scraper(request: Req) -> bool:
    """The token of the server's configuration opens this one page, and needs no database."""
    wanted: str = request.app.state.metrics_token
    return bool(wanted) and hmac.compare_digest(bearer(request.scope).encode(), wanted.encode())


def own(store: Store, store_up: bool) -> str:
    """What only this server can tell: every replica is scraped by itself."""
    return "".join(f"{line}\n" for line in _own(store, store_up))


def _own(store: Store, store_up: bool) -> Iterator[str]:
    yield from _family("gpuaas_store_up", "gauge", "1 if the database answered", [({}, int(store_up))])
    connections = [({"state": state}, count) for state, count in store.connections().items()]
    yield from _family("gpuaas_store_connections", "gauge", "Connections to the database", connections)
    for name, family in store.meters.families.items():
        kind = "gauge" if family.kind == AGE else family.kind
        yield f"# HELP gpuaas_{name} {family.help}"
        yield f"# TYPE gpuaas_{name} {kind}"
        for suffix, labels, value in store.meters.lines(name):
            yield _line(f"gpuaas_{name}{suffix}", labels, value)


def exposition(fleet: Fleet) -> str:
    return "".join(f"{line}\n" for line in _lines(fleet))


def _lines(fleet: Fleet) -> Iterator[str]:
    yield from _states("gpuaas_nodes", "Nodes by state", NODE, fleet.nodes)
    yield from _family("gpuaas_agents_linked", "gauge", "Agents heard of just now", [({}, fleet.agents_linked)])
    yield from _states("gpuaas_slots", "Slots by state", SLOT, fleet.slots)
    in_use = [
        ({"gpu_model": model or "none", "use": use}, fleet.slots_in_use.get((model, use), 0))
        for model in sorted({model for model, _ in fleet.slots_in_use})
        for use in USES
    ]
    yield from _family("gpuaas_slots_in_use", "gauge", "Approved slots by GPU model and what becomes of them", in_use)
    yield from _states("gpuaas_allocations", "Allocations by state", ALLOCATION, fleet.allocations)
    for name, help, value in (
        ("queue_allocations", "Launches that wait for room", fleet.queued),
        ("queue_oldest_seconds", "How long the oldest of them waits", fleet.queued_seconds),
        ("node_silence_seconds", "Since the quietest ready node was heard of", fleet.silence_seconds),
        ("webhook_deliveries_pending", "Deliveries on their way or waiting for a retry", fleet.webhooks_pending),
        ("webhook_lag_events", "Events that webhooks have not even begun to be sent", fleet.webhooks_lag),
    ):
        yield from _family(f"gpuaas_{name}", "gauge", help, [({}, value)])
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
            yield _line(name, labels, value)


def _line(name: str, labels: Labels, value: float) -> str:
    said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{said}}} {value}" if said else f"{name} {value}"


def _labels(item: Measured) -> Labels:
    names = {"name": item.name, "org": item.org, "project": item.project, "node": item.node}
    return {"allocation": item.sample.allocation_id, **names}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB
