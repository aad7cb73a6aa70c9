"""What is printed: tables for people, JSON for programs. Nothing that a server sends can steer the terminal."""

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from gpuaas.kit.visible import STEERING, visible

safe = visible
_GOOD = frozenset({"active", "approved", "done", "healthy", "intact", "ready", "succeeded"})
_BAD = frozenset({"failed", "lost", "quarantined", "unhealthy", "unreachable", "altered"})
_OVER = frozenset({"pending", "released", "stopped", "removed", "retired", "superseded"})


def echo(text: str = "", *, err: bool = False) -> None:
    """Prints what is safe already."""
    stream = sys.stderr if err else sys.stdout
    color = False if os.environ.get("NO_COLOR") else None
    try:
        click.echo(text, file=stream, color=color)
    except BrokenPipeError:  # the reader has seen enough; end as a program does that SIGPIPE ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise click.exceptions.Exit(141) from None


def note(text: str) -> None:
    """A word to the person, out of the way of what a script reads."""
    echo(safe(text), err=True)


def json(value: Any, *, err: bool = False) -> None:
    import msgspec

    encoded = msgspec.json.encode(value).decode()
    # Inside a JSON string an escape means the same character, and does nothing to a terminal.
    echo(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded), err=err)


def json_page(items: Iterable[Any]) -> None:
    json({"items": list(items), "next_cursor": None})


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    cells = [[safe("-" if cell is None or cell == "" else cell) for cell in row] for row in rows]
    if not cells:
        if empty:
            note(empty)
        return
    widths = [max(len(line[i]) for line in (list(columns), *cells)) for i in range(len(columns))]
    echo(click.style(_padded(columns, widths), bold=True))
    for line in cells:
        echo(_padded(line, widths, colored=True))


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value, one pair a line; empty values are left out."""
    shown = [(name, safe(value)) for name, value in pairs if value not in (None, "", [])]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        echo(f"{click.style(name.ljust(width), dim=True)}  {state(value)}")


def state(text: str, width: int = 0) -> str:
    """Coloured when it is the name of a state."""
    color = "green" if text in _GOOD else "red" if text in _BAD else None
    dim = True if text in _OVER else None
    return click.style(text.ljust(width), fg=color, dim=dim) if color or dim else text.ljust(width)


def moment(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(at: datetime | None) -> str:
    return "-" if at is None else duration((datetime.now(UTC) - at).total_seconds())


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def size(bytes: float) -> str:
    """Like 3.5G; powers of 1024."""
    for unit in ("B", "K", "M", "G", "T"):
        if bytes < 1000 or unit == "T":
            return f"{bytes:.0f}{unit}" if unit == "B" or bytes >= 10 else f"{bytes:.1f}{unit}"
        bytes /= 1024
    raise AssertionError("unreachable")


def _padded(line: Sequence[str], widths: Sequence[int], *, colored: bool = False) -> str:
    cells = [state(cell, width) if colored else cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
    return "  ".join(cells).rstrip()
