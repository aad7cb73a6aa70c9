"""The run directory is in memory, and nobody's mount but our own is taken away."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.node.host import run_directory
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute


@pytest.fixture
def run() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # a disk, where /tmp may be none
        yield Path(directory).resolve() / "run"


def test_it_is_in_memory_until_it_is_cleared(run: Path) -> None:
    run_directory.ensure(run)
    present = mounts.at(run)
    assert present is not None
    assert (present.filesystem, present.propagation) == ("tmpfs", frozenset())
    assert run.stat().st_mode & 0o777 == 0o711
    (run / "kept").write_text("by the next agent")
    run_directory.ensure(run)
    assert (run / "kept").exists()
    run_directory.clear(run)
    assert mounts.at(run) is None
    assert not run.exists()


def test_what_was_left_on_the_disk_before_a_reboot_does_not_show(run: Path) -> None:
    (run / "allocations").mkdir(parents=True)
    run_directory.ensure(run)
    assert list(run.iterdir()) == []
    run_directory.clear(run)


def test_a_directory_in_which_something_is_mounted_stays_where_it_is(run: Path) -> None:
    pins = run / "namespaces"
    pins.mkdir(parents=True)
    mounted(pins, "gpuaas")
    try:
        run_directory.ensure(run)
        assert mounts.at(run) is None
        assert mounts.at(pins) is not None
    finally:
        mounts.unmount(pins)


def test_a_mount_of_the_operators_stays(run: Path) -> None:
    run.mkdir()
    mounted(run, "theirs")
    try:
        run_directory.ensure(run)
        run_directory.clear(run)
        assert [each.source for each in mounts.mounts() if each.target == str(run)] == ["theirs"]
    finally:
        mounts.unmount(run)


def mounted(place: Path, source: str) -> None:
    fd = mounts.filesystem("tmpfs", {"source": source, "size": "1m"}, Attribute.NOSUID | Attribute.NODEV)
    try:
        mounts.attach(fd, place)
    finally:
        os.close(fd)
