"""How far a build is, or an image on its way to the server: a bar and its phases on a terminal, lines elsewhere,
nothing for a program."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuaas.cli import output

if TYPE_CHECKING:
    from gpuaas.runtimes.build.phases import Progress


@contextmanager
def shown(title: str, *, json: bool) -> Iterator["Callable[[Progress], None]"]:
    if json:
        yield lambda progress: None
    elif sys.stderr.isatty():
        with _bar(title) as report:
            yield report
    else:
        yield _lines(title)


def _lines(title: str) -> "Callable[[Progress], None]":
    started: dict[str, float] = {}

    def report(progress: "Progress") -> None:
        started.setdefault(progress.phase, time.monotonic())
        if progress.state != "running":
            taken = output.duration(time.monotonic() - started[progress.phase])
            output.note(
                " ".join(filter(None, [f"{title}: {progress.phase} {progress.state} ({taken})", progress.message]))
            )

    return report


@contextmanager
def sending(title: str, size: int, *, json: bool) -> Iterator[Callable[[int], None]]:
    """How much of an image is on the server."""
    started = time.monotonic()
    if json or not sys.stderr.isatty():
        yield lambda here: None
        if not json:
            from gpuaas.runtimes.sizes import show_bytes

            output.note(f"{title}: {show_bytes(size)} ({output.duration(time.monotonic() - started)})")
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn(output.safe(title)), BarColumn(30), DownloadColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=size)
        yield lambda here: bar.update(task, completed=here)


@contextmanager
def _bar(title: str) -> "Iterator[Callable[[Progress], None]]":
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from gpuaas.runtimes.build.phases import PHASES

    far = dict.fromkeys((name for name, _ in PHASES), 0)
    columns = (TextColumn("{task.fields[title]}"), BarColumn(30), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(far) * 100, title=output.safe(title).replace("[", "\\["))

        def report(progress: "Progress") -> None:
            """From any thread: files are fetched several at a time."""
            far[progress.phase] = 100 if progress.state == "done" else progress.percent or far[progress.phase]
            said = f"{progress.phase} {progress.message}".strip()
            bar.update(task, completed=sum(far.values()), description=output.safe(said)[:60].replace("[", "\\["))

        yield report
