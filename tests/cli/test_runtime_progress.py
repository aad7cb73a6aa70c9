"""How far a build is, as a terminal shows it, and as lines."""

import re

import pytest
from rich.progress import Progress as Bar

from gpuaas.cli.runtime_progress import shown
from gpuaas.runtimes.build.phases import PHASES, Progress

TOLD = [
    *((Progress(name, "running"), Progress(name, "done", "", 100)) for name, _ in PHASES[:6]),
    (Progress("image", "running"), Progress("image", "running", "292 MB"), Progress("image", "done", "292 MB", 100)),
    (Progress("verify", "running"), Progress("verify", "running", "python [-V]", 50)),
    (Progress("verify", "done", "2 checks", 100), Progress("store", "running"), Progress("store", "done", "", 100)),
]
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_phases_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is done now is named; the bar never goes back, and ends full."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # so that rich takes it for a terminal
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    seen: list[tuple[str, float]] = []
    update = Bar.update

    def look(bar: Bar, task: int, **more: object) -> None:
        update(bar, task, **more)  # type: ignore[arg-type]
        bar.refresh()
        seen.append((str(bar.tasks[0].description), bar.tasks[0].completed))

    monkeypatch.setattr(Bar, "update", look)
    with shown("python:3.11", json=False) as report:
        for progress in (each for group in TOLD for each in group):
            report(progress)
    assert [said for said, _ in seen[12:]] == [
        "image",
        "image 292 MB",
        "image 292 MB",
        "verify",
        "verify python \\[-V]",
        "verify 2 checks",
        "store",
        "store",
    ]
    far = [completed for _, completed in seen]
    assert far == sorted(far)
    assert far[-1] == 100 * len(PHASES)
    printed = CODES.sub("", capsys.readouterr().err)
    assert "python:3.11" in printed
    assert "verify python [-V]" in printed
    assert not re.search(r"Traceback|\\\[", printed)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with shown("python:3.11", json=False) as report:
        for progress in (each for group in TOLD for each in group):
            report(progress)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == [name for name, _ in PHASES]
    assert re.fullmatch(r"python:3\.11: verify done \(.*\) 2 checks", lines[7])
