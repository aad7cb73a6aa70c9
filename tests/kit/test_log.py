import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from gpuaas.kit import log

logger = logging.getLogger("test")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_one_json_object_with_the_ids_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    with log.bound(correlation_id="c1", org_id=None), log.bound(allocation_id="a1"):
        logger.info("two\nlines", extra={"fields": {"phase": "place"}})
    logger.info("outside")
    inside, outside = lines(capsys)
    assert inside["message"] == "two\nlines"
    assert {key: inside[key] for key in ("level", "logger", "correlation_id", "allocation_id", "phase")} == {
        "level": "info",
        "logger": "test",
        "correlation_id": "c1",
        "allocation_id": "a1",
        "phase": "place",
    }
    assert "org_id" not in inside
    assert "correlation_id" not in outside


def test_times_are_utc_with_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    record = logging.LogRecord("test", logging.INFO, "", 0, "at", (), None)
    record.created, record.msecs = 0.042, 42.0
    logger.handle(record)
    assert lines(capsys)[0]["at"] == "1970-01-01T00:00:00.042Z"


def test_an_exception_is_part_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("failed")
    (line,) = lines(capsys)
    assert line["level"] == "error"
    assert "ValueError: why" in line["error"]


def test_the_fields_end_with_the_block_also_when_it_raises() -> None:
    with pytest.raises(RuntimeError), log.bound(correlation_id="c1"):
        raise RuntimeError
    assert log._bound.get() is None


def test_chatty_libraries_are_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    logging.getLogger("httpx").info("GET /")
    assert lines(capsys) == []


@pytest.mark.parametrize("said", ["plain", "caf\u00e9", "\u009b31m", "\x1b[31m", "a\u2028b", "half \udce9"])
def test_what_a_terminal_would_act_on_is_never_written(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    logger.info("%s", said)
    written = capsys.readouterr().err
    assert written.isascii()
    assert written.isprintable() or written.count("\n") == 1
    assert json.loads(written)["message"] == said


def test_what_is_said_often_is_the_same_line_as_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    with log.bound(correlation_id="c1"):
        logger.info("asked", extra={"fields": {"status": 200, "path": "/\u202e"}})
        log.often(logger, "asked", {"status": 200, "path": "/\u202e"})
    usual, often = (dict(line) for line in lines(capsys))
    assert usual.pop("at")[:10] == often.pop("at")[:10]
    assert usual == often
    log.setup("WARNING")
    log.often(logger, "asked", {"status": 200})
    assert lines(capsys) == []


def test_whoever_listens_besides_hears_what_is_said_often(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log.often(logger, "asked", {"status": 200})
    assert [record.getMessage() for record in caplog.records] == ["asked"]


def test_a_line_that_nobody_can_hear_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stderr", full)
        log.setup()
        log.often(logger, "asked", {"status": 200})
        monkeypatch.undo()
        with suppress(OSError):  # what could not be written is still in its buffer
            full.close()
