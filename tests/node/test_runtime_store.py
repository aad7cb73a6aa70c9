"""Images of runtimes on a disk: whole, verified, or absent."""

import errno
import hashlib
import os
import time
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.runtimes.descriptor import text
from gpuaas.node.host.runtimes.store import Store
from gpuaas.wire.node import RuntimeSpec

DATA = b"an image" * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runtimes")


def files(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "runtimes"))


def test_half_an_image_never_has_its_name_and_the_next_agent_goes_on(store: Store, tmp_path: Path) -> None:
    assert store.begin(DIGEST, len(DATA)) == 0
    store.append(DIGEST, 0, DATA[:3000])
    assert files(tmp_path) == [f".{DIGEST}.part"]
    again = Store(tmp_path / "runtimes")
    assert (again.has(DIGEST), again.digests(), again.parts()) == (False, {}, {DIGEST})
    assert again.begin(DIGEST, len(DATA)) == 3000
    again.append(DIGEST, 3000, DATA[3000:])
    again.settle(DIGEST)
    assert files(tmp_path) == [f".{DIGEST}.read", f"{DIGEST}.erofs"]
    assert again.digests() == {DIGEST: len(DATA)}
    assert again.intact(DIGEST)


def test_what_is_larger_than_it_may_be_starts_again(store: Store) -> None:
    store.append(DIGEST, 0, DATA + b"more")
    assert store.begin(DIGEST, len(DATA)) == 0


def test_a_truncated_or_changed_one_is_thrown_away(store: Store, tmp_path: Path) -> None:
    for wrong in (DATA[:-1], DATA[:-1] + b"?"):
        store.append(DIGEST, 0, wrong)
        assert not store.settle(DIGEST)
        assert files(tmp_path) == []


def test_a_flipped_byte_is_found(store: Store, tmp_path: Path) -> None:
    store.append(DIGEST, 0, DATA)
    store.settle(DIGEST)
    with (tmp_path / "runtimes" / f"{DIGEST}.erofs").open("r+b") as file:
        file.seek(4000)
        file.write(b"X")
    assert not store.intact(DIGEST)
    store.remove(DIGEST)
    assert not store.intact(DIGEST)
    assert files(tmp_path) == []


@pytest.mark.parametrize("keeps_times", [False, True])
def test_a_file_that_somebody_wrote_to_is_another_one_until_it_was_read(
    store: Store, tmp_path: Path, keeps_times: bool
) -> None:
    assert not store.changed(DIGEST)  # it is not here
    store.append(DIGEST, 0, DATA)
    store.settle(DIGEST)
    assert not store.changed(DIGEST)
    assert not Store(tmp_path / "runtimes").changed(DIGEST)  # also for the next agent
    file = tmp_path / "runtimes" / f"{DIGEST}.erofs"
    before = file.stat()
    time.sleep(0.02)  # older kernels count times in jiffies
    with file.open("r+b") as opened:
        opened.write(DATA[:1])
    if keeps_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.changed(DIGEST)
    assert Store(tmp_path / "runtimes").changed(DIGEST)
    assert store.intact(DIGEST)
    assert not store.changed(DIGEST)
    assert not Store(tmp_path / "runtimes").changed(DIGEST)
    (tmp_path / "runtimes" / f".{DIGEST}.read").write_text("1 2")
    assert Store(tmp_path / "runtimes").changed(DIGEST)  # half of a word about it is none
    store.remove(DIGEST)
    assert files(tmp_path) == []


def test_one_that_came_while_its_damaged_predecessor_was_read_stays(store: Store, tmp_path: Path) -> None:
    store.append(DIGEST, 0, DATA)
    store.settle(DIGEST)
    (tmp_path / "runtimes" / f"{DIGEST}.erofs").write_bytes(DATA[:-1] + b"?")

    def meanwhile() -> bool:
        store.remove(DIGEST)
        store.append(DIGEST, 0, DATA)
        store.settle(DIGEST)
        return True

    assert store.intact(DIGEST, meanwhile)
    assert store.intact(DIGEST)


def test_a_part_that_cannot_be_read_is_fetched_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(DIGEST, 0, DATA)

    def lost(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pread", lost)
        with pytest.raises(HostError):
            store.settle(DIGEST)
    assert store.begin(DIGEST, len(DATA)) == 0


def test_a_stamp_that_cannot_be_written_says_nothing_against_an_image(store: Store, tmp_path: Path) -> None:
    (tmp_path / "runtimes" / f".{DIGEST}.read").mkdir()
    store.append(DIGEST, 0, DATA)
    store.settle(DIGEST)
    assert store.intact(DIGEST)
    assert not store.changed(DIGEST)


def test_the_one_that_was_read_longest_ago_is_read_next(store: Store, tmp_path: Path) -> None:
    assert store.oldest() is None
    other = hashlib.sha256(b"other").hexdigest()
    for digest, data, at in ((DIGEST, DATA, 1000), (other, b"other", 2000)):
        store.append(digest, 0, data)
        store.settle(digest)
        os.utime(tmp_path / "runtimes" / f"{digest}.erofs", (at, at))
    assert store.oldest() == (DIGEST, 1000)
    assert store.intact(DIGEST, lambda: False)  # not read to its end: nothing is known
    assert store.oldest() == (DIGEST, 1000)
    assert store.intact(DIGEST)
    assert store.oldest() == (other, 2000)


def test_the_last_of_a_disk_is_not_for_images(store: Store) -> None:
    with pytest.raises(HostError, match="have to stay free"):
        store.begin(DIGEST, 1 << 60)


class Disk:
    """What is free on it, in MiB; it has a thousand, so that fifty are not for images."""

    def __init__(self, free: int) -> None:
        self.f_blocks, self.f_frsize, self.f_bavail = 1000, 1 << 20, free


@pytest.mark.parametrize(
    ("free", "low", "fits"), [(1000, False, True), (99, True, True), (60, True, True), (59, True, False)]
)
def test_watermarks(store: Store, monkeypatch: pytest.MonkeyPatch, free: int, low: bool, fits: bool) -> None:
    """Below a tenth what nobody uses goes; what would leave less than a twentieth does not come."""
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(free))
    assert store.low() is low
    if fits:
        assert store.begin(DIGEST, 10 << 20) == 0
    else:
        with pytest.raises(HostError, match="needs 10 MiB, and 50 MiB of the node's disk have to stay free"):
            store.begin(DIGEST, 10 << 20)


def test_a_disk_that_fills_while_an_image_comes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write too. It stops at the watermark, not when the last byte is gone, and goes on when there is room."""
    half = len(DATA) // 2
    store.append(DIGEST, 0, DATA[:half])
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(50))
    with pytest.raises(HostError, match="have to stay free"):
        store.append(DIGEST, half, DATA[half:])
    assert store.arrived(DIGEST) == half
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(1000))
    store.append(DIGEST, half, DATA[half:])
    store.settle(DIGEST)
    assert store.has(DIGEST)


@pytest.mark.parametrize("name", ["", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_only_a_digest_becomes_a_path(store: Store, name: str) -> None:
    for verb in (store.has, store.arrived, store.settle, store.remove, store.open):
        with pytest.raises(HostError, match="not the digest"):
            verb(name)


def test_a_link_in_the_place_of_an_image_is_not_followed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    (tmp_path / "runtimes" / f"{DIGEST}.erofs").symlink_to(tmp_path / "secret")
    (tmp_path / "runtimes" / f".{DIGEST}.part").symlink_to(tmp_path / "secret")
    with pytest.raises(HostError):
        store.open(DIGEST)
    with pytest.raises(HostError):
        store.append(DIGEST, len(DATA), b"more")
    assert (tmp_path / "secret").read_bytes() == DATA


def test_the_descriptor_is_safe_in_every_shell() -> None:
    spec = RuntimeSpec("tool", "1.0+cu12", DIGEST, 1)
    assert "GPUAAS_RUNTIME_TOOL_VERSION='1.0+cu12'\n" in text("al-x", [spec])
    for evil in ("1'; rm -rf /; '", "1\nX=1", "$(id)", "1`id`"):
        with pytest.raises(HostError, match="not plain"):
            text("al-x", [RuntimeSpec("tool", evil, DIGEST, 1)])
