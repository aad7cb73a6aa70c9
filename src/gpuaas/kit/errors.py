"""The error tree of the whole product.

Exception
 +-- Problem     something a caller can act on; becomes RFC 9457 problem details in one place
 +-- HostError   the machine said no; raised only by code below node/host
 +-- Taken       something with this name, key or number exists already
 +-- Stale       somebody else moved the object first; drop the result, never retry blindly
"""

from collections.abc import Mapping
from typing import Any


class Problem(Exception):
    """`message` and `hint` are for the user, `detail` is for the operator's log only."""

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        hint: str = "",
        *,
        detail: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message
        self.hint = hint
        self.detail = detail
        self.extra: Mapping[str, Any] = extra or {}


class HostError(Exception):
    """`action` on `target` failed because of `cause`. `transient` says whether trying again can help."""

    def __init__(self, action: str, target: str, cause: str, *, transient: bool = True) -> None:
        super().__init__(f"{action} {target}: {cause}")
        self.action = action
        self.target = target
        self.cause = cause
        self.transient = transient


class Taken(Exception):
    """A unique constraint said no."""


class Stale(Exception):
    """A guarded update touched no row: the object has moved on since it was read."""


def not_found(kind: str, name: str) -> Problem:
    return Problem(
        "not_found",
        404,
        f"There is no {kind} {name!r} that you can see.",
        f"List what you can see, or check the {kind}'s name and the project you are in.",
    )


def conflict(code: str, message: str, hint: str = "", **extra: Any) -> Problem:
    return Problem(code, 409, message, hint, extra=extra)


def invalid(message: str, hint: str = "", code: str = "invalid_request", **extra: Any) -> Problem:
    return Problem(code, 422, message, hint, extra=extra)
