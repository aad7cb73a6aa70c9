"""Structured logs: one JSON object per line on stderr, carrying the ids of the work in progress."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
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
        line: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_bound.get() or {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        with suppress(UnicodeEncodeError):  # half a character, as in the name of a file that is no text
            quickly = _ENCODER.encode(line)
            if quickly.isascii():  # a terminal acts on some of what is not
                return quickly.decode()
        return json.dumps(line, default=str)


def setup(level: str = "INFO") -> None:
    import time

    handler = logging.StreamHandler(sys.stderr)
    formatter = _JsonLines()
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    # No line says which thread, process or source line wrote it: finding out costs as much as writing it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "websockets", "alembic", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
