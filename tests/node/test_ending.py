"""How a machine ended, in words that somebody can act on."""

from pathlib import Path

import pytest

from gpuaas.node.host.supervisor import ending
from gpuaas.node.host.supervisor.ending import Ending


@pytest.mark.parametrize(
    ("status", "kills", "said"),
    [
        (0, 0, "its first process ended with status 0"),
        (3, 0, "its first process ended with status 3"),
        (-9, 0, "its first process was killed by signal 9 (SIGKILL)"),
        (-35, 0, "its first process was killed by signal 35"),
        (None, 0, "the node stops"),
        (
            -9,
            2,
            "its first process was killed by signal 9 (SIGKILL); "
            "it ran out of memory, 2 of its processes were killed for it",
        ),
    ],
)
def test_it_is_said_how(status: int | None, kills: int, said: str) -> None:
    assert ending.words(Ending(1.0, "the node stops", status, kills)) == said


@pytest.mark.parametrize("data", [None, b"", b"{", b'{"at": 1}', b"\xff"])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / ending.FILE).write_bytes(data)
    assert ending.read(tmp_path) is None
    ending.write(tmp_path, Ending(1.0, "over", 0))
    assert ending.read(tmp_path) == Ending(1.0, "over", 0)
    assert [each.name for each in tmp_path.iterdir()] == [ending.FILE]
