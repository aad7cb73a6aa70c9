"""What the agent can ask a running supervisor: one message each way, on a connection of its own."""

import socket
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError

SOCKET = "supervisor"
MAX_MESSAGE = 256 * 1024
TIMEOUT_SECONDS = 20.0


class Request(Struct, frozen=True, tag=True):
    pass


class Keys(Request, frozen=True):
    """The keys have changed: end the sessions of those that are not in the list any more."""


class Connect(Request, frozen=True):
    """Somebody comes through the server. With it comes the socket to talk to them."""

    source: str


class Stop(Request, frozen=True):
    """End the machine: politely for `grace_seconds`, then not. The answer comes when everything has ended."""

    reason: str
    grace_seconds: float


class Sessions(Request, frozen=True):
    """Who is there."""


AnyRequest = Keys | Connect | Stop | Sessions


class Answer(Struct, frozen=True):
    error: str = ""
    sessions: int = 0


def address(live: Path) -> str:
    return str(live / SOCKET)


def ask(live: Path, request: AnyRequest, fd: int | None = None) -> Answer | None:
    """None when there is no supervisor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            connection.connect(address(live))
            socket.send_fds(connection, [msgspec.json.encode(request)], [] if fd is None else [fd])
            data = connection.recv(MAX_MESSAGE)
        except (FileNotFoundError, ConnectionError):
            return None
        except OSError as error:
            raise HostError("ask the supervisor of", live.name, str(error)) from error
    if not data:
        return None
    answer = msgspec.json.decode(data, type=Answer)
    if answer.error:
        raise HostError("ask the supervisor of", live.name, answer.error)
    return answer


def answers(live: Path) -> bool:
    """Whether there is one."""
    return ask(live, Sessions()) is not None
