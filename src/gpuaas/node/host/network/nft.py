"""The host's packet filter, through libnftables: a transaction takes 1 ms, the program `nft` 5.

Every text is one transaction: all of it happens, or nothing.
"""

import ctypes
import json
import threading
from typing import Any

from gpuaas.kit.errors import HostError

_LIBRARY = "libnftables.so.1"
_JSON = 1 << 4
_lock = threading.Lock()
_opened: tuple[ctypes.CDLL, int] | None = None


class Refused(Exception):
    """In the words of nft."""


def change(commands: str) -> None:
    _run(commands, 0)


def listed(command: str) -> list[dict[str, Any]]:
    """The objects of a `list` command."""
    output = _run(command, _JSON)
    found: list[dict[str, Any]] = json.loads(output)["nftables"] if output else []
    return found


def tables() -> set[str]:
    """The names of all that there are."""
    return {each["table"]["name"] for each in listed("list tables") if "table" in each}


def _run(commands: str, flags: int) -> bytes:
    global _opened
    with _lock:
        # Kept: closing one waits until the kernel has freed what was deleted through it, 10 ms and more.
        _opened = _opened or _open()
        library, context = _opened
        library.nft_ctx_output_set_flags(context, flags)
        failed = library.nft_run_cmd_from_buffer(context, commands.encode())
        said: bytes = library.nft_ctx_get_error_buffer(context) or b""
        output: bytes = library.nft_ctx_get_output_buffer(context) or b""
    if failed:
        raise Refused(said.decode(errors="replace").strip())
    return output


def _open() -> tuple[ctypes.CDLL, int]:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        cause = f"{_LIBRARY} is not installed (apt install nftables)"
        raise HostError("load", "the packet filter", cause, transient=False) from error
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    for name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_char_p
    context = library.nft_ctx_new(0)
    if not context:
        raise HostError("open", "the packet filter", "nftables could not be started")
    library.nft_ctx_buffer_output(context)
    library.nft_ctx_buffer_error(context)
    return library, context
