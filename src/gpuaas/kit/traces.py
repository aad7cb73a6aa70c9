"""OpenTelemetry traces, where somebody wants them: `gpuaas[otel]` is installed and OTEL_EXPORTER_OTLP_ENDPOINT is set.

Everything that is done under one correlation id is one trace, in whatever process it is done: the trace's id follows
from the correlation id, so that nothing but that id has to travel. Without the setting nothing is even imported.
"""

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORT_MILLISECONDS = 1000
FLUSH_MILLISECONDS = 2000  # what a command waits for a collector that is away, at most

_tracer: Any = None
_provider: Any = None


def wanted() -> bool:
    return any(os.environ.get(name) for name in ENDPOINTS)


def enabled() -> bool:
    return _tracer is not None


def setup(service: str) -> None:
    """Called once by each process, by its entry point."""
    global _tracer, _provider
    if not wanted() or enabled():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("traces are wanted, but OpenTelemetry is not installed: install gpuaas[otel]")
        return
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or service})
    _provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(timeout=FLUSH_MILLISECONDS / 1000)
    _provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=EXPORT_MILLISECONDS))
    _tracer = _provider.get_tracer("gpuaas")


def shutdown() -> None:
    """Sends what is left. A collector that is away delays nobody for long."""
    global _tracer, _provider
    provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        provider.force_flush(FLUSH_MILLISECONDS)
        provider.shutdown()


@contextmanager
def span(name: str, correlation_id: str | None, **attributes: str | int | float) -> Iterator[None]:
    """What happens inside, as a part of the trace of this correlation id. An exception marks it as failed."""
    if _tracer is None or not correlation_id:
        yield
        return
    started, failed = time.time(), ""
    try:
        yield
    except BaseException as error:
        failed = str(error) or type(error).__name__
        raise
    finally:
        record(name, correlation_id, started, time.time(), failed=failed, **attributes)


def record(
    name: str,
    correlation_id: str | None,
    started: float,
    ended: float,
    *,
    failed: str = "",
    **attributes: str | int | float,
) -> None:
    """The same for what is over already; times are seconds since 1970."""
    if _tracer is None or not correlation_id:
        return
    from opentelemetry.trace import Status, StatusCode

    said = {key.replace("__", "."): value for key, value in attributes.items()}
    made = _tracer.start_span(
        name,
        context=_parent(correlation_id),
        start_time=int(started * 1e9),
        attributes={"gpuaas.correlation_id": correlation_id, **said},
    )
    if failed:
        made.set_status(Status(StatusCode.ERROR, failed))
    made.end(end_time=int(max(started, ended) * 1e9))


def _parent(correlation_id: str) -> Any:
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    digest = hashlib.sha256(b"gpuaas trace " + correlation_id.encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return set_span_in_context(NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=sampled)))
