"""Downloads: what does not have its digest is not kept, and nothing goes on for ever."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.build.fetch import fetch
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.shelf import Shelf
from runtimes.registry import Registry, registry


@pytest.fixture
def web() -> Iterator[Registry]:
    with registry() as found:
        yield found


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path)
    made.make()
    return made


def said(message: str, percent: int | None) -> None:
    pass


def artifact(url: str, data: bytes, size: int = 0, algorithm: str = "sha256") -> Artifact:
    digest = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    return Artifact("archive", "a", "1", "a.tgz", digest, url, size)


def test_each_file_once(web: Registry, shelf: Shelf) -> None:
    web.files = {"/a": b"aaa", "/b": b"bbb"}
    wanted = [artifact(f"{web.url}/a", b"aaa", 3), artifact(f"{web.url}/b", b"bbb", algorithm="sha512")]
    fetch(wanted * 2, shelf, said)
    fetch(wanted, shelf, said)
    assert sorted(web.asked) == ["/a", "/b"]
    assert [shelf.artifact(each.digest).read_bytes() for each in wanted] == [b"aaa", b"bbb"]


@pytest.mark.parametrize("rotten", [b"aab", b"", b"aaaa"])
def test_what_rotted_here_is_fetched_again(web: Registry, shelf: Shelf, rotten: bytes) -> None:
    web.files = {"/a": b"aaa", "/b": b"bbb"}
    wanted = [artifact(f"{web.url}/a", b"aaa", algorithm="sha512"), artifact(f"{web.url}/b", b"bbb")]
    fetch(wanted, shelf, said)
    shelf.artifact(wanted[0].digest).write_bytes(rotten)
    told: list[str] = []
    fetch(wanted, shelf, lambda message, percent: told.append(message))
    assert shelf.artifact(wanted[0].digest).read_bytes() == b"aaa"
    assert sorted(web.asked) == ["/a", "/a", "/b"]
    assert told == ["a.tgz is damaged here, and is fetched again", "a 1", "1 files"]


def test_what_rotted_here_and_is_gone_elsewhere_is_not_used(web: Registry, shelf: Shelf) -> None:
    web.files = {"/a": b"aaa"}
    wanted = artifact(f"{web.url}/a", b"aaa")
    fetch([wanted], shelf, said)
    shelf.artifact(wanted.digest).write_bytes(b"aab")
    web.files = {}
    with pytest.raises(Problem) as refused:
        fetch([wanted], shelf, said)
    assert refused.value.code == "not_in_registry"


def test_from_a_file(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "x y.whl").write_bytes(b"wheel")
    one = artifact((tmp_path / "x y.whl").as_uri(), b"wheel")
    fetch([one], shelf, said)
    assert shelf.artifact(one.digest).read_bytes() == b"wheel"


@pytest.mark.parametrize(("data", "size"), [(b"other", 0), (b"good and more", 4), (b"goo", 4), (b"", 4)])
def test_what_is_not_what_the_lock_names(web: Registry, shelf: Shelf, data: bytes, size: int) -> None:
    web.files = {"/a": data}
    with pytest.raises(Problem) as refused:
        fetch([artifact(f"{web.url}/a", b"good", size)], shelf, said)
    assert refused.value.code == "wrong_digest"
    assert not list((shelf.path / "artifacts").iterdir())


def test_endless_data(web: Registry, shelf: Shelf) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    web.files = {"/a": endless}
    with pytest.raises(Problem, match="larger than 1000000 bytes"):
        fetch([artifact(f"{web.url}/a", b"good", 1_000_000)], shelf, said)
    assert not list((shelf.path / "artifacts").iterdir())


def test_what_is_gone(web: Registry, shelf: Shelf) -> None:
    with pytest.raises(Problem) as refused:
        fetch([artifact(f"{web.url}/a", b"good")], shelf, said)
    assert refused.value.code == "not_in_registry"
    assert "--relock" in refused.value.hint
    with pytest.raises(Problem, match="does not answer"):
        fetch([artifact("http://127.0.0.1:9/a", b"good")], shelf, said)
