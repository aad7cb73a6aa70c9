"""One step of a build: what it prints is in the log at once, and never all in memory."""

import os
import threading
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import process

SHELL = ("/bin/sh", "-e", "-c")


def test_what_it_prints_is_in_the_log_before_it_ends(tmp_path: Path) -> None:
    """The log is a pipe here, to wait for it; the step goes on only when it was read."""
    os.mkfifo(tmp_path / "go")
    reading, writing = os.pipe()
    printed: list[str] = []
    with os.fdopen(reading, "rb", 0) as log, os.fdopen(writing, "wb", 0) as out:
        script = f"echo early; read word < {tmp_path / 'go'}; echo $word"
        step = threading.Thread(target=lambda: printed.append(process.run([*SHELL, script], out, what="a step")))
        step.start()
        seen = b""
        while b"early\n" not in seen:
            seen += log.read(1000)
        assert (seen, printed) == (b"$ a step\nearly\n", [])
        (tmp_path / "go").write_text("late\n")
        step.join()
        assert log.read(1000) == b"late\n"
    assert printed == ["early\nlate\n"]


def test_what_hung_is_in_the_log_and_in_the_problem(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, pytest.raises(Problem, match=r"did not end within 0\.5 seconds") as hung:
        process.run([*SHELL, "echo begun; sleep 600 & sleep 600"], log, timeout_seconds=0.5)
    assert hung.value.detail == "begun"
    assert (tmp_path / "log").read_text() == "$ sh\nbegun\n"


def test_what_is_given_up_ends() -> None:
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(Problem, match="sleep was stopped"):
        process.run(["/usr/bin/sleep", "600"], given_up=given_up)


def test_who_prints_without_end_is_stopped_in_time() -> None:
    with pytest.raises(Problem, match="did not end"):
        process.run(["/usr/bin/yes"], timeout_seconds=0.5)


def test_of_much_the_end_is_kept_and_all_is_in_the_log(tmp_path: Path) -> None:
    size = 2 * process.KEPT_BYTES
    script = f"head -c {size} /dev/zero; echo end"
    with (tmp_path / "log").open("wb") as log:
        printed = process.run([*SHELL, script], log)
    assert printed.endswith("\0end\n")
    assert process.KEPT_BYTES // 2 < len(printed) <= process.KEPT_BYTES
    assert (tmp_path / "log").stat().st_size == len("$ sh\n") + size + len("end\n")
    with pytest.raises(Problem, match="printed more than"):
        process.run([*SHELL, script], whole=True)


def test_a_failure_tells_the_last_lines() -> None:
    with pytest.raises(Problem, match="a step failed with code 3") as failed:
        process.run([*SHELL, "for n in $(seq 40); do echo $n; done; exit 3"], what="a step")
    assert failed.value.detail.splitlines() == [str(number) for number in range(26, 41)]
    with pytest.raises(Problem, match="failed with signal 9"):
        process.run([*SHELL, "kill -9 $$"])
    with pytest.raises(Problem, match="cannot be started"):
        process.run(["/nonexistent"])
