"""Cursor pagination: opaque, stable under inserts, refused when tampered with.

The checksum in a cursor keeps people from making their own; it protects nothing, because a cursor gives no right.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from gpuaas.kit.errors import Problem

T = TypeVar("T")

CHECKSUM_BYTES = 6


def encode(*parts: Any) -> str:
    text = "|".join(part.isoformat() if isinstance(part, datetime) else str(part) for part in parts)
    return base64.urlsafe_b64encode(_checksum(text) + text.encode()).decode()


def position(cursor: str | None) -> tuple[datetime, str] | None:
    """(created_at, id) of the last item that was seen."""
    if cursor is None:
        return None
    at, _, id = _decode(cursor).partition("|")
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise _bad_cursor() from None
    if moment.tzinfo is None or not id:
        raise _bad_cursor()
    return moment, id


def pair(cursor: str | None) -> tuple[str, str] | None:
    """(name, id) of the last item that was seen."""
    if cursor is None:
        return None
    name, _, id = _decode(cursor).partition("|")
    if not name or not id:
        raise _bad_cursor()
    return name, id


def word(cursor: str | None) -> str:
    """The name that was seen last."""
    return "" if cursor is None else _decode(cursor)


def number(cursor: str | None) -> int:
    """The sequence number that was seen last."""
    if cursor is None:
        return 0
    text = _decode(cursor)
    if not (text.isdigit() and text.isascii() and len(text) < 19):
        raise _bad_cursor()
    return int(text)


def cut(items: Sequence[T], limit: int) -> tuple[Sequence[T], bool]:
    """The store was asked for one more than the limit: is there another page?"""
    return items[:limit], len(items) > limit


def _decode(cursor: str) -> str:
    try:
        raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        text = raw[CHECKSUM_BYTES:].decode()
    except (binascii.Error, ValueError):
        raise _bad_cursor() from None
    if raw[:CHECKSUM_BYTES] != _checksum(text) or not text.isprintable():
        raise _bad_cursor()
    return text


def _checksum(text: str) -> bytes:
    return hashlib.sha256(b"gpuaas cursor " + text.encode()).digest()[:CHECKSUM_BYTES]


def _bad_cursor() -> Problem:
    return Problem("bad_cursor", 422, "This cursor is not one of ours.", "Start again without a cursor.")
