"""What builds leave on a shelf goes when nobody needs it; what a version was made of stays."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import tidy
from gpuaas.runtimes.build.base import base_of
from gpuaas.runtimes.lock.lockfile import Artifact, Lock
from gpuaas.runtimes.shelf import Build, Shelf, write

HOUR = 3600.0


def artifact(name: str) -> Artifact:
    return Artifact("npm", name, "1.0", f"{name}.tgz", f"sha256:{name.encode().hex():0<64}", f"https://x/{name}")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "shelf")
    made.make()
    return made


def built(shelf: Shelf, version: str, sha256: str, *names: str, architecture: str = "amd64") -> Lock:
    lock = Lock("tool:1", architecture, "0" * 64, (artifact("base"),), (), tuple(artifact(name) for name in names))
    for each in lock.everything:
        write(shelf.artifact(each.digest), each.name.encode())
    base_of(lock.base, shelf).mkdir(exist_ok=True)
    (base_of(lock.base, shelf) / "file").write_text("base")
    write(shelf.lock("tool", version, architecture), msgspec.json.encode(lock))
    write(shelf.image(sha256), b"image")
    write(shelf.bundle("tool", version) / sha256 / "lock.json", msgspec.json.encode(lock))
    shelf.note(Build("tool", version, architecture, sha256))
    return lock


def age(shelf: Shelf, hours: float = 2) -> None:
    at = time.time() - hours * HOUR
    for path in shelf.path.rglob("*"):
        os.utime(path, (at, at))


def gone(shelf: Shelf) -> list[tuple[str, str]]:
    before = time.time() - HOUR
    would = tidy.unused(shelf, before)
    removed = tidy.remove(shelf, before)
    assert {each.path for each in would} == {each.path for each in removed}
    assert not any(Path(each.path).exists() for each in removed)
    return sorted((each.kind, Path(each.path).name) for each in removed)


def test_a_build_for_another_architecture_stays(shelf: Shelf) -> None:
    built(shelf, "1", "a" * 64, "ours")
    built(shelf, "1", "b" * 64, "theirs", architecture="arm64")
    built(shelf, "1", "c" * 64, "theirs", architecture="arm64")
    age(shelf)
    assert gone(shelf) == [("image", f"{'b' * 64}.erofs"), ("papers", "b" * 64)]
    assert shelf.builds("tool", "1") == {"amd64": "a" * 64, "arm64": "c" * 64}


def test_an_earlier_build_goes_with_what_only_it_was_made_of(shelf: Shelf) -> None:
    built(shelf, "1", "a" * 64, "old", "both")
    built(shelf, "1", "b" * 64, "new", "both")
    (shelf.path / "logs" / "failed.log").write_text("x")
    age(shelf)
    old = shelf.artifact(artifact("old").digest).name
    expected = [("artifact", old), ("image", f"{'a' * 64}.erofs"), ("log", "failed.log"), ("papers", "a" * 64)]
    assert gone(shelf) == expected
    assert gone(shelf) == []
    assert shelf.built("tool", "1") == "b" * 64
    assert all(shelf.artifact(artifact(name).digest).exists() for name in ("base", "new", "both"))


def test_a_base_that_no_lock_names(shelf: Shelf) -> None:
    lock = built(shelf, "1", "a" * 64, "x")
    (shelf.path / "bases" / ("0" * 64) / "usr").mkdir(parents=True)
    (shelf.path / "bases" / ("0" * 64) / "usr" / "file").write_text("12345")
    age(shelf)
    (found,) = tidy.remove(shelf, time.time() - HOUR)
    assert (found.kind, found.size) == ("base", 5)
    assert base_of(lock.base, shelf).exists()


def test_what_is_young_stays(shelf: Shelf) -> None:
    built(shelf, "1", "a" * 64, "old")
    built(shelf, "1", "b" * 64, "new")
    assert gone(shelf) == []


def test_a_lock_that_was_made_is_kept_also_without_an_image(shelf: Shelf) -> None:
    """A build that failed: the next one takes the same files."""
    lock = built(shelf, "1", "a" * 64, "x")
    (shelf.bundle("tool", "1") / "built-amd64").unlink()
    age(shelf)
    assert {kind for kind, _ in gone(shelf)} == {"image", "papers"}
    assert all(shelf.artifact(each.digest).exists() for each in lock.everything)


def test_not_while_somebody_builds(shelf: Shelf) -> None:
    with shelf.workspace(), pytest.raises(Problem) as refused:
        tidy.remove(shelf, time.time())
    assert refused.value.code == "in_progress"
    assert tidy.remove(shelf, time.time() - HOUR) == []


def test_a_shelf_that_is_not_there(tmp_path: Path) -> None:
    assert tidy.remove(Shelf(tmp_path / "no"), time.time()) == []
    assert not (tmp_path / "no").exists()
