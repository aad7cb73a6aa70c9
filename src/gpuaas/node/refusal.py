"""What a server says when it refuses: a problem document (RFC 9457), as far as one is there and can be read."""

from http.client import HTTPException
from urllib.error import HTTPError

import msgspec

from gpuaas.kit.visible import visible

_MOST_BYTES = 4096
_MOST_CHARACTERS = 500  # of each text: a report has room for 2000


class Said(msgspec.Struct, frozen=True):
    code: str = ""
    detail: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        return " ".join(visible(each)[:_MOST_CHARACTERS] for each in (self.detail, self.hint) if each)


def said(refused: HTTPError) -> Said:
    """Empty where a proxy, or whatever else is on the way, answers with something of its own."""
    try:
        return msgspec.json.decode(refused.read(_MOST_BYTES), type=Said)
    except (msgspec.MsgspecError, ValueError, OSError, HTTPException):
        return Said()
