"""What the SDK raises.

Exception
 +-- GpuaasError          everything that this package raises on purpose
      +-- ApiError        the server said no: `code` is stable, `message` and `hint` are for people
      +-- Unreachable     no usable connection, also after the retries
      +-- OperationFailed long work that was waited for ended, but not as asked: see `operation`

A wait that was given a limit raises the built-in TimeoutError.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from gpuaas.wire.api import OperationView

_KNOWN = ("type", "title", "status", "code", "detail", "hint", "correlation_id")


class GpuaasError(Exception):
    """Base of all errors of the SDK."""


class ApiError(GpuaasError):
    """Problem details as the server sent them; `extra` holds the fields that only some problems have."""

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        hint: str = "",
        correlation_id: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message
        self.hint = hint
        self.correlation_id = correlation_id
        self.extra: Mapping[str, Any] = extra or {}

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def problem(self) -> dict[str, Any]:
        """The same as RFC 9457 problem details."""
        return {
            **self.extra,
            "type": f"urn:gpuaas:problem:{self.code}",
            "title": self.code.replace("_", " "),
            "status": self.status,
            "code": self.code,
            "detail": self.message,
            "hint": self.hint,
            "correlation_id": self.correlation_id,
        }


class Unreachable(GpuaasError):
    """`server` did not answer, `cause` says why."""

    def __init__(self, server: str, cause: str) -> None:
        super().__init__(f"{server} does not answer: {cause}")
        self.server = server
        self.cause = cause


class OperationFailed(GpuaasError):
    """The operation is over and did not succeed: it failed, or newer intent superseded it."""

    def __init__(self, operation: OperationView) -> None:
        self.operation = operation
        self.code = operation.failure.code if operation.failure else operation.state
        self.message = operation.failure.message if operation.failure else _ended(operation)
        super().__init__(f"{operation.kind} {operation.id} {operation.state}: {self.message}")


def from_answer(status: int, body: bytes, correlation_id: str) -> ApiError:
    """The error in an answer; also in one that some proxy on the way made up."""
    found = _fields(body)
    return ApiError(
        code=str(found.get("code") or f"http_{status}"),
        status=status,
        message=str(found.get("detail") or f"The server answered {status} {_title(status)}."),
        hint=str(found.get("hint") or ("" if found else "Check the server's address, and what is between it and you.")),
        correlation_id=str(found.get("correlation_id") or correlation_id),
        extra={name: value for name, value in found.items() if name not in _KNOWN},
    )


def _fields(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _title(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"


def _ended(operation: OperationView) -> str:
    return "a newer request took its place" if operation.state == "superseded" else f"it ended as {operation.state}"
