"""Long work, live: a spinner and the phases with their durations; plain lines where there is no terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from gpuaas.cli import output
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gpuaas.sdk.types import OperationView, PhaseView

_MARKS = {"done": ("✓", "green"), "failed": ("✗", "red"), "pending": ("·", "dim")}


def watch(session: Session, operation: "OperationView", title: str, stream: TextIO) -> "OperationView":
    """Shows an operation until it is over, and returns how it ended. Interrupting the display interrupts nothing."""
    try:
        if session.json:
            display = _silent
        elif stream.isatty():
            display = _live
        else:
            display = _plain
        last = operation
        with display(title, stream) as show:
            show.send(operation)
            if operation.state == "running":
                for last in session.client().operations.follow(operation.id):
                    show.send(last)
        return last
    except KeyboardInterrupt:
        output.note(f"Only the display ended, the {operation.kind} goes on: `gpuaas op follow {operation.id}`.")
        raise


def seconds(phase: "PhaseView") -> float | None:
    if phase.started_at is None or phase.finished_at is None:
        return None
    return max(0.0, (phase.finished_at - phase.started_at).total_seconds())


class _Show(Protocol):
    """Takes each new look at the operation."""

    def send(self, operation: "OperationView") -> None: ...


class _Nothing:
    def send(self, operation: "OperationView") -> None:
        pass


@contextmanager
def _silent(title: str, stream: TextIO) -> Iterator[_Show]:
    yield _Nothing()


class _Lines:
    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._said: dict[str, str] = {}

    def send(self, operation: "OperationView") -> None:
        for phase in operation.phases:
            if phase.state in ("pending", self._said.get(phase.name, "pending")):
                continue
            self._said[phase.name] = phase.state
            taken = seconds(phase)
            parts = [phase.name, phase.state, "" if taken is None else f"({output.duration(taken)})", phase.message]
            self._say(" ".join(part for part in parts if part))
        if operation.state != "running":
            self._say(operation.state)

    def _say(self, text: str) -> None:
        output.echo(output.safe(f"{self._title}: {text}"), err=self._stream is sys.stderr)


@contextmanager
def _plain(title: str, stream: TextIO) -> Iterator[_Show]:
    yield _Lines(title, stream)


class _Picture:
    def __init__(self, title: str) -> None:
        self._title = title
        self._operation: OperationView | None = None
        self._running_since: dict[str, float] = {}  # by our clock: the server's may differ

    def send(self, operation: "OperationView") -> None:
        self._operation = operation
        for phase in operation.phases:
            if phase.state == "running":
                self._running_since.setdefault(phase.name, time.monotonic())

    def render(self) -> "RenderableType":
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        operation = self._operation
        if operation is None:
            return Text("")
        grid = Table.grid(padding=(0, 2))
        for phase in operation.phases:
            mark, style = _MARKS.get(phase.state, ("", ""))
            first: RenderableType = Spinner("dots") if phase.state == "running" else Text(mark, style)
            said = phase.message + (f" {phase.percent}%" if phase.percent and phase.state == "running" else "")
            grid.add_row(first, Text(output.safe(phase.name)), Text(self._time(phase)), Text(output.safe(said), "dim"))
        head = Text.assemble((output.safe(self._title), "bold"), "  ", output.safe(operation.state))
        return Group(head, grid)

    def _time(self, phase: "PhaseView") -> str:
        if phase.state == "running":
            return output.duration(time.monotonic() - self._running_since[phase.name])
        taken = seconds(phase)
        return "" if taken is None else output.duration(taken)


@contextmanager
def _live(title: str, stream: TextIO) -> Iterator[_Show]:
    from rich.console import Console
    from rich.live import Live

    picture = _Picture(title)
    with Live(get_renderable=picture.render, console=Console(file=stream), refresh_per_second=12):
        yield picture
