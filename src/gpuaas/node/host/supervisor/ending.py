"""How a machine ended, as its supervisor saw it: left in a file for the agent, who tells whoever asks why."""

import signal
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

FILE = "exit.json"


class Ending(Struct, frozen=True):
    at: float
    reason: str
    status: int | None  # of its first process, negative for a signal; None: it was told to end, or nobody could tell
    out_of_memory_kills: int = 0  # in its whole life


def write(live: Path, ended: Ending) -> None:
    aside = live / f".{FILE}"
    aside.write_bytes(msgspec.json.encode(ended))
    aside.rename(live / FILE)


def read(live: Path) -> Ending | None:
    try:
        return msgspec.json.decode((live / FILE).read_bytes(), type=Ending)
    except (OSError, msgspec.MsgspecError):
        return None


def words(ended: Ending) -> str:
    """For people. Who was killed for want of memory is not told apart, only that somebody in there was."""
    if ended.status is None:
        how = ended.reason
    elif ended.status < 0:
        how = f"its first process was killed by signal {-ended.status}{_name(-ended.status)}"
    else:
        how = f"its first process ended with status {ended.status}"
    kills = ended.out_of_memory_kills
    return f"{how}; it ran out of memory, {kills} of its processes were killed for it" if kills else how


def _name(number: int) -> str:
    with suppress(ValueError):
        return f" ({signal.Signals(number).name})"
    return ""
