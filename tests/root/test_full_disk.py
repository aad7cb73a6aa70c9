"""A build on a disk that somebody else fills meanwhile: it says so, leaves its log, and works when there is room."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import bundlefile, settings, tools
from gpuaas.runtimes.build.builder import build
from gpuaas.runtimes.build.phases import Progress
from gpuaas.runtimes.shelf import Shelf
from root.conftest import needs
from root.disks import Disk, disk
from runtimes.builds import SHELF, needs_tools
from runtimes.test_small_builds import GOOD, archive, recipe

pytestmark = [needs("mkfs.ext4"), needs_tools, pytest.mark.slow]
__all__ = ["archive"]  # a fixture


@pytest.fixture
def large(work: Path) -> Iterator[Disk]:
    with disk(work, 4096) as made:
        yield made


@pytest.fixture
def shelf(large: Disk) -> Shelf:
    """All of it on that disk but for what does not change: the base, and what was fetched."""
    SHELF.make()
    made = Shelf(large.path / "runtimes")
    made.path.mkdir()
    for name in ("artifacts", "apt", "bases"):
        (made.path / name).symlink_to(SHELF.path / name)
    made.make()
    return made


@pytest.mark.parametrize("full_in", ["check", "lock", "fetch", "unpack", "finish", "image", "store"])
def test_a_disk_that_fills_during_a_build(large: Disk, shelf: Shelf, archive: Path, full_in: str) -> None:
    tool, architecture, found = recipe(archive, GOOD), tools.architecture(), settings.load()

    def somebody_else(progress: Progress) -> None:
        if (progress.phase, progress.state, progress.message) == (full_in, "running", ""):
            large.fill()

    with pytest.raises(Problem) as refused:
        build(tool, architecture, found, shelf, somebody_else)
    assert (refused.value.code, refused.value.status) == ("disk_full", 507), refused.value
    (log,) = (shelf.path / "logs").iterdir()
    assert refused.value.hint.endswith(f"\nLog: {log}")
    assert shelf.built("tool", "1") is None
    assert not list((shelf.path / "work").iterdir())
    large.empty()
    built = build(tool, architecture, found, shelf)
    assert built.new
    assert not build(tool, architecture, found, shelf).new


@pytest.mark.parametrize("leave_kib", [0, 12, 64])
def test_a_disk_that_is_full_for_a_file_that_is_taken_in(
    large: Disk, shelf: Shelf, archive: Path, tmp_path: Path, leave_kib: int
) -> None:
    (archive.parent / "tool").write_bytes(os.urandom(100_000))
    with tarfile.open(archive, "w:gz") as out:
        out.add(archive.parent / "tool", "tool-1/bin/other")
    build(recipe(archive, ""), tools.architecture(), settings.load(), shelf)
    bundlefile.export("tool", "1", shelf, tmp_path / "tool.tar")
    other = Shelf(large.path / "other")
    other.make()
    large.fill(leave_kib)
    with pytest.raises(Problem) as refused:
        bundlefile.take_in(tmp_path / "tool.tar", other)
    assert refused.value.code == "disk_full"
    large.empty()
    assert bundlefile.take_in(tmp_path / "tool.tar", other).id == "tool:1"
