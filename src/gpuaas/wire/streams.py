"""A stream to a machine through the server: two WebSockets that the server joins, binary frames of bytes both ways.

    user                          server                              agent
    GET allocations/{id}/ssh  ->         -> Dial(ticket) over the link ->
                                         <- GET streams, ticket as bearer token
    bytes                    <->         <->                              bytes of the machine's sshd

An empty frame is the end of what its sender has to say; a close ends both ways, and its reason is for the user.
The ticket is in a header and never in a path, because servers and proxies log paths.
"""

from typing import NamedTuple

DIAL_BACK_PATH = "/api/v1/streams"
TICKET_SECONDS = 15.0
CHUNK_BYTES = 32 * 1024
MAX_FRAME_BYTES = 128 * 1024
REASON_BYTES = 123  # of a close frame
END = b""


class Close(NamedTuple):
    code: int
    reason: str = ""


# 4000 and what HTTP would have said.
DONE = 1000
ACCESS_LOST = 4403
NODE_FAILED = 4502
NODE_SILENT = 4504
CODES = {ACCESS_LOST: "access_lost", NODE_FAILED: "node_failed", NODE_SILENT: "node_silent"}


def close(code: int, reason: str) -> Close:
    """As it can be sent: cut to what a close frame holds, and without codes that only mean that a frame is missing."""
    cut = reason.encode()[:REASON_BYTES].decode(errors="ignore")
    if code == DONE or 4000 <= code < 5000:
        return Close(code, cut)
    return Close(NODE_FAILED, cut or "the connection was lost")
