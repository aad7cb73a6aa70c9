"""Structured logs: one JSON object per line on stderr, carrying the ids of the work in progress."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

# The ids that an incident is explained with; every line names those that are known.
FIELDS = (
    "correlation_id",
    "org_id",
    "project_id",
    "allocation_id",
    "operation_id",
    "node_id",
    "app_instance_id",
    "operating_mode",
    "control_plane_scope",
    "runtime_backend",
)
_bound: ContextVar[dict[str, str] | None] = ContextVar("log_fields", default=None)


@contextmanager
def bound(**fields: str | None) -> Iterator[None]:
    """Every line logged inside carries these fields."""
    merged = {**(_bound.get() or {}), **{k: v for k, v in fields.items() if v is not None}}
    token = _bound.set(merged)
    try:
        yield
    finally:
        _bound.reset(token)


_ENCODER = msgspec.json.Encoder(enc_hook=str)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        more = getattr(record, "fields", {})
        if record.exc_info:
            more = {**more, "error": self.formatException(record.exc_info)}
        return _line(record.created, record.levelname.lower(), record.name, record.getMessage(), more)


def _line(at: float, level: str, logger: str, message: str, fields: Mapping[str, Any]) -> str:
    said = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"at": said, "level": level, "logger": logger, "message": message, **(_bound.get() or {}), **fields}
    with suppress(UnicodeEncodeError):  # half a character, as in the name of a file that is no text
        quickly = _ENCODER.encode(line)
        if quickly.isascii():  # a terminal acts on some of what is not
            return quickly.decode()
    return json.dumps(line, default=str)


_ours: logging.StreamHandler[Any] | None = None


def often(logger: logging.Logger, message: str, fields: Mapping[str, Any]) -> None:
    """As `logger.info` with these fields, at a third of its cost: for what is said of every request."""
    if not logger.isEnabledFor(logging.INFO):
        return
    if _ours is None or logging.root.handlers != [_ours]:
        logger.info(message, extra={"fields": fields})
        return
    line = _line(time.time(), "info", logger.name, message, fields)
    with suppress(OSError, ValueError), _ours.lock or nullcontext():  # nobody listens: no reason to refuse anything
        _ours.stream.write(line + _ours.terminator)
        _ours.flush()


def setup(level: str = "INFO") -> None:
    global _ours
    handler = _ours = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    # No line says which thread, process or source line wrote it: finding out costs as much as writing it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "websockets", "alembic", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
