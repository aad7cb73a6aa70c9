import os
import stat
import threading
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.disk import FileDisk


@pytest.fixture
def disk(tmp_path: Path) -> FileDisk:
    return FileDisk(tmp_path / "state")


def test_reads_what_was_written(disk: FileDisk) -> None:
    assert disk.read("head.json") is None
    disk.write("head.json", b"one")
    disk.write("head.json", b"")
    disk.write("node.key", b"two" * 100_000)
    assert disk.read("head.json") == b""
    assert disk.read("node.key") == b"two" * 100_000
    assert disk.names() == ["head.json", "node.key"]
    disk.remove("head.json")
    disk.remove("head.json")
    assert disk.names() == ["node.key"]


def test_only_the_owner_can_read(disk: FileDisk, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        disk.write("node.key", b"secret")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "node.key").stat().st_mode) == 0o600


def test_an_open_directory_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    FileDisk(tmp_path / "state")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../x", "a\n", "a\0", "ä", "x" * 300])
def test_other_names_are_refused(disk: FileDisk, name: str) -> None:
    for call in (lambda: disk.read(name), lambda: disk.write(name, b""), lambda: disk.remove(name)):
        with pytest.raises(HostError):
            call()


def test_links_are_never_followed(disk: FileDisk, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("canary")
    (tmp_path / "state" / "head.json").symlink_to(canary)
    (tmp_path / "state" / ".writing-head.json").symlink_to(canary)
    with pytest.raises(HostError):
        disk.read("head.json")
    with pytest.raises(HostError):
        disk.write("head.json", b"evil")
    assert canary.read_text() == "canary"
    FileDisk(tmp_path / "state").write("head.json", b"good")
    assert canary.read_text() == "canary"
    assert disk.read("head.json") == b"good"


def test_the_directory_itself_may_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="state"):
        FileDisk(tmp_path / "state")


def test_a_fifo_does_not_hang_the_agent(disk: FileDisk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state" / "head.json")
    with pytest.raises(HostError):
        disk.read("head.json")


def test_what_a_crash_left_half_written_is_swept(disk: FileDisk, tmp_path: Path) -> None:
    disk.write("head.json", b"whole")
    (tmp_path / "state" / ".writing-head.json").write_bytes(b"hal")
    again = FileDisk(tmp_path / "state")
    assert again.names() == ["head.json"]
    assert again.read("head.json") == b"whole"
    assert os.listdir(tmp_path / "state") == ["head.json"]


def test_a_full_disk_is_a_host_error_and_keeps_the_old_file(disk: FileDisk, tmp_path: Path) -> None:
    disk.write("head.json", b"old")
    (tmp_path / "state" / ".writing-head.json").mkdir()
    with pytest.raises(HostError):
        disk.write("head.json", b"new")
    assert disk.read("head.json") == b"old"


def test_only_one_agent_holds_a_directory(tmp_path: Path) -> None:
    first, second = FileDisk(tmp_path / "state"), FileDisk(tmp_path / "state")
    first.hold()
    with pytest.raises(HostError, match="another agent"):
        second.hold()
    first.close()
    second.hold()


def test_writers_of_different_files_do_not_meet(disk: FileDisk) -> None:
    threads = [threading.Thread(target=disk.write, args=(f"file-{i}", str(i).encode())) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [disk.read(f"file-{i}") for i in range(16)] == [str(i).encode() for i in range(16)]
