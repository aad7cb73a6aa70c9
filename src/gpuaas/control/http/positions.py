"""Where somebody is in the feed of an org: a number per project, in one text that fits into a Last-Event-ID header.

Like a cursor it is opaque and carries a checksum, and gives no right.
"""

import base64
import binascii
import hashlib

from gpuaas.kit.errors import Problem

Position = dict[str, int]  # project id: the number of the last event seen

MOST_PROJECTS = 400  # 8,000 characters: what proxies take in a header
ID_BYTES, SEQ_BYTES, CHECKSUM_BYTES = 10, 5, 6


def encoded(position: Position) -> str:
    if len(position) > MOST_PROJECTS:
        raise Problem(
            "too_many_projects",
            422,
            f"An organisation with more than {MOST_PROJECTS} projects has no feed of its own.",
            "Follow its projects one by one, or make a webhook of the organisation.",
        )
    parts = [_id(project_id) + seq.to_bytes(SEQ_BYTES, "big") for project_id, seq in sorted(position.items())]
    body = b"".join(parts)
    return base64.urlsafe_b64encode(_checksum(body) + body).decode().rstrip("=")


def decoded(text: str) -> Position:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad() from None
    body, size = raw[CHECKSUM_BYTES:], ID_BYTES + SEQ_BYTES
    if raw[:CHECKSUM_BYTES] != _checksum(body) or len(body) % size:
        raise _bad()
    found = {}
    for start in range(0, len(body), size):
        part = body[start : start + size]
        id = "pj-" + base64.b32encode(part[:ID_BYTES]).decode().lower()
        found[id] = int.from_bytes(part[ID_BYTES:], "big")
    return found


def _id(project_id: str) -> bytes:
    return base64.b32decode(project_id.removeprefix("pj-").upper())


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(b"gpuaas position " + body).digest()[:CHECKSUM_BYTES]


def _bad() -> Problem:
    return Problem("bad_position", 422, "This Last-Event-ID is not one of ours.", "Start again without one.")
