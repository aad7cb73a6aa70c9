"""A stream that survives: lost connections and restarted servers cost a pause, not an event."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from gpuaas.sdk.errors import ApiError, GpuaasError, Unreachable
from gpuaas.sdk.sse import Frame, Parser
from gpuaas.sdk.transport import Query, Transport

SILENCE_SECONDS = 60.0  # the server sends a comment much more often than this
_PASSING = frozenset({429, 502, 503, 504})
T = TypeVar("T")


def frames(
    transport: Transport, path: str, *, query: Query | None = None, last_id: str = "", deadline: float | None = None
) -> Iterator[Frame]:
    """All frames, across connections, until the caller has enough. Each new connection resumes after the last id.

    Ends with the error of the last attempt when the server stays away for `retry.patience_seconds`, with TimeoutError
    at the `deadline` (of `retry.clock`).
    """
    retry = transport.retry
    failures, heard_at, complained = 0, retry.clock(), False
    while True:
        error: GpuaasError | None = None
        parser = Parser(last_id)
        try:
            for chunk in _chunks(transport, path, query, last_id, _left(transport, deadline, SILENCE_SECONDS)):
                failures, heard_at = 0, retry.clock()
                for frame in parser.feed(chunk):
                    if frame.event == "error":
                        raise _Complaint(transport.server, frame.data)
                    complained, last_id = False, frame.id
                    yield frame
                last_id = parser.last_id
                _left(transport, deadline, SILENCE_SECONDS)
        except ValueError as garbage:
            raise _unreadable(garbage) from garbage
        except _Complaint as complaint:
            # A stream cannot change its status; a new connection gets the refusal with its status and hint.
            if complained:
                raise
            complained, error = True, complaint
        except Unreachable as lost:
            error = lost
        except ApiError as refused:
            if refused.status not in _PASSING:
                raise
            error = refused
        failures += 1
        if error is not None and retry.clock() - heard_at > retry.patience_seconds:
            raise error
        retry.sleep(_left(transport, deadline, retry.pause_seconds(failures)))


def decoded(frame: Frame, as_: type[T]) -> T:
    try:
        return msgspec.json.decode(frame.data, type=as_)
    except msgspec.DecodeError as garbage:
        raise _unreadable(garbage) from garbage


def _unreadable(why: Exception) -> ApiError:
    hint = "Check the server's address, and that client and server have the same version."
    return ApiError("unreadable_answer", 200, f"The server's stream is not what this client knows: {why}.", hint)


class _Complaint(Unreachable):
    """The last frame of a stream that the server broke off."""


def _chunks(transport: Transport, path: str, query: Query | None, last_id: str, read_seconds: float) -> Iterator[bytes]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with transport.stream(path, query=query, headers=headers, read_seconds=read_seconds) as chunks:
        yield from chunks


def _left(transport: Transport, deadline: float | None, at_most: float) -> float:
    """`at_most`, or what is left until the deadline."""
    if deadline is None:
        return at_most
    left = deadline - transport.retry.clock()
    if left <= 0:
        raise TimeoutError("the time for this wait is over")
    return min(at_most, left)
