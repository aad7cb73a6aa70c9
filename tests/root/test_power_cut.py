"""What was said to be stored is there after a power cut, whole: images on nodes, on servers and on shelves."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuaas.control.store.images import Images
from gpuaas.node.host.runtimes.store import Store
from gpuaas.runtimes import bundlefile
from gpuaas.runtimes.shelf import Shelf, settle, write
from gpuaas.runtimes.verify import verify
from root.conftest import needs
from root.disks import Disk, disk
from runtimes.bundle import Bundle

pytestmark = needs("mkfs.ext4", "mkfs.erofs", "fsck.erofs")
DATA = os.urandom(3 << 20)
DIGEST = hashlib.sha256(DATA).hexdigest()


def on_a_node(place: Path, work: Path) -> None:
    store = Store(place)
    store.begin(DIGEST, len(DATA))
    store.append(DIGEST, 0, DATA)
    store.settle(DIGEST)
    os.close(store._dir)


def on_a_server(place: Path, work: Path) -> None:
    with Images(place).arriving(DIGEST, len(DATA), 0) as arrival:
        arrival.write(DATA)
        arrival.close()


def on_a_shelf(place: Path, work: Path) -> None:
    place.mkdir()
    (place / "made").write_bytes(DATA)
    settle(place / "made", place / f"{DIGEST}.erofs")


def as_a_paper(place: Path, work: Path) -> None:
    place.mkdir()
    write(place / f"{DIGEST}.erofs", DATA)


Keep = Callable[[Path, Path], None]
KEEPERS = [on_a_node, on_a_server, on_a_shelf, as_a_paper]


@pytest.fixture
def small(work: Path) -> Iterator[Disk]:
    with disk(work, 1024) as made:
        yield made


def is_whole(place: Path) -> bool:
    file = place / f"{DIGEST}.erofs"
    return file.exists() and file.read_bytes() == DATA


@pytest.mark.parametrize("keep", KEEPERS)
def test_what_is_stored_outlives_a_power_cut(keep: Keep, small: Disk, work: Path) -> None:
    keep(small.path / "images", work)
    small.cut()
    assert is_whole(small.path / "images")


@pytest.mark.parametrize("left_out", ["files", "directories", "everything"])
@pytest.mark.parametrize("keep", KEEPERS)
def test_it_would_not_without_every_sync(
    keep: Keep, left_out: str, small: Disk, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or this disk would not be a test of anything."""
    sync = os.fsync

    def careless(fd: int) -> None:
        if left_out != "everything" and os.path.isdir(f"/proc/self/fd/{fd}") == (left_out == "files"):
            sync(fd)

    monkeypatch.setattr(os, "fsync", careless)
    keep(small.path / "images", work)
    monkeypatch.undo()
    small.cut()
    assert not is_whole(small.path / "images")


def test_a_runtime_that_was_taken_in_is_there_with_its_papers(small: Disk, work: Path) -> None:
    file = Bundle(work / "bundle").write(work / "tool.tar")
    shelf = Shelf(small.path / "runtimes")
    manifest = bundlefile.take_in(file, shelf)
    small.cut()
    assert verify(manifest.bundle, manifest.version, shelf).intact
