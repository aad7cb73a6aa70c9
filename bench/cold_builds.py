"""Building runtimes where nothing is yet, no base, no package, no lock: how long the first to deploy one waits.

    fetch     until every version is decided and every file is here: the registries, and the line to them
    build     the rest, which is ours: tree, bytecode, checks, image
    again     the same once more, with all files here (the second of a machine, or a colleague's)

Each runtime has a shelf of its own, so that each fetches its base too. uv's own cache is empty as well. The registries
are those of the machine's settings. Nothing is promised: `runtimes.py` has what is. Takes about three minutes.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from floors.results import record

from gpuaas.runtimes import settings, tools
from gpuaas.runtimes.build.builder import Built, build
from gpuaas.runtimes.build.phases import Progress, Report, nobody
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.shelf import Shelf

NAMES = ("python:3.11+ml", "java:17", "node:18", "pytorch", "jupyter")


def main() -> int:
    if os.geteuid() != 0 or tools.missing():
        print(f"skipped: needs root and {', '.join(tools.PROGRAMS)}")
        return 0
    lines = [
        f"Seconds, each from an empty shelf; load average at the end {{load:.0f}} on {os.cpu_count()} cores.",
        "",
        "| runtime | fetched | fetch | build | together | again | image |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(name) for name in NAMES]
    text = "\n".join(lines).format(load=os.getloadavg()[0])
    print(text)
    record("cold builds", text)
    return 0


def _line(name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-", dir="/var/tmp") as directory:
        shelf = Shelf(Path(directory))
        fetched_at = began = time.monotonic()

        def report(progress: Progress) -> None:
            nonlocal fetched_at
            if progress.phase == "fetch" and progress.state == "done":
                fetched_at = time.monotonic()

        _build(name, shelf, report)
        ended = time.monotonic()
        built = _build(name, shelf, nobody, again=True)
        again = time.monotonic() - ended
        fetched = sum(each.stat().st_size for each in (shelf.path / "artifacts").iterdir())
        image = shelf.image(built.sha256).stat().st_size
    times = (fetched_at - began, ended - fetched_at, ended - began, again)
    shown = " | ".join(f"{each:.1f}" for each in times)
    return f"| {name} | {fetched / 2**20:.0f} MiB | {shown} | {image / 2**20:.0f} MiB |"


def _build(name: str, shelf: Shelf, report: Report, *, again: bool = False) -> Built:
    return build(Library().get(name), tools.architecture(), settings.load(), shelf, report, again=again)


if __name__ == "__main__":
    sys.exit(main())
