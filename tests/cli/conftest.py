import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuaas.cli.main import run
from runtimes.builds import WITH_UV
from sdk.playback import Playback, playback


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Gpuaas:
    """The command line with a home of its own; in this process, because a new one takes half a second."""

    def __init__(self, home: Path, server: str) -> None:
        self.home = home
        self.config = home / ".config" / "gpuaas" / "config.json"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUAAS_", "XDG_"))}
        self.environment = {**kept, **WITH_UV, "HOME": str(home)}
        self.environment |= {"GPUAAS_SERVER": server, "GPUAAS_TOKEN": "gpt_mine"}

    def command(self, *arguments: str) -> list[str]:
        """The same for a process of its own."""
        return [sys.executable, "-m", "gpuaas.cli.main", *arguments]

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Said:
        wanted = {name: value for name, value in {**self.environment, **environment}.items() if value}
        out, err = io.StringIO(), io.StringIO()
        with _environment(wanted), _stdin(stdin), redirect_stdout(out), redirect_stderr(err):
            code = run(list(arguments))
        return Said(code, out.getvalue(), err.getvalue())


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _stdin(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


@pytest.fixture
def server() -> Iterator[Playback]:
    with playback() as played:
        yield played


@pytest.fixture
def gpuaas(tmp_path: Path, server: Playback) -> Gpuaas:
    return Gpuaas(tmp_path, server.url)
