"""The look at a finished tree."""

import os
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.tree import Limits, examine


def test_every_entry_with_its_digest(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    (tmp_path / "d" / "l").symlink_to("f")
    assert [(each.path, each.kind, each.size, each.target) for each in examine(tmp_path)] == [
        ("d", "directory", 0, ""), ("d/f", "file", 1, ""), ("d/l", "link", 0, "f"),
    ]  # fmt: skip
    (tmp_path / "d" / "f").write_text("y")
    first, second = examine(tmp_path), examine(tmp_path)
    assert first == second
    assert first[1].sha256.startswith("a1fce4363854ff888cff4b8e7875d600")  # printf y | sha256sum


def test_links_are_followed_as_the_kernel_does(tmp_path: Path) -> None:
    """Each of these looks fine on paper. Together they leave."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "x").mkdir()
    (tmp_path / "a" / "b" / "c" / "d").symlink_to("../../../x")
    examine(tmp_path)
    (tmp_path / "a" / "b" / "c" / "e").symlink_to("d/../..")
    with pytest.raises(Problem, match="outside of the runtime"):
        examine(tmp_path)


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../x", "a/../../x"])
def test_a_link_that_leaves(tmp_path: Path, target: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "l").symlink_to(target)
    with pytest.raises(Problem, match="outside of the runtime"):
        examine(tmp_path)


def test_circles_are_refused_and_dangling_links_are_not(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to("missing/x")
    examine(tmp_path)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(Problem):
        examine(tmp_path)


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    (tmp_path / "f").chmod(0o4755)
    with pytest.raises(Problem, match="setuid"):
        examine(tmp_path)
    (tmp_path / "f").chmod(0o755)
    os.mkfifo(tmp_path / "p")
    with pytest.raises(Problem, match="neither a file"):
        examine(tmp_path)


def test_attributes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    try:
        os.setxattr(tmp_path / "f", "user.x", b"y")
    except OSError:
        pytest.skip("this file system has no attributes")
    with pytest.raises(Problem, match=r"user\.x"):
        examine(tmp_path)


@pytest.mark.parametrize("names", [("A", "a"), ("ﬁ", "fi"), ("é", "e\u0301"), ("straße", "STRASSE")])
def test_names_too_much_alike(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    assert len(examine(tmp_path)) == 2
    with pytest.raises(Problem, match="too much like"):
        examine(tmp_path, unique_names=True)


@pytest.mark.parametrize("name", [b"a\nb", b"a\x1bb", b"\xff"])
def test_names_that_nobody_should_see(tmp_path: Path, name: bytes) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT))
    with pytest.raises(Problem):
        examine(tmp_path)


@pytest.mark.parametrize(
    "limits", [Limits(entries=2), Limits(total_bytes=2), Limits(file_bytes=1), Limits(depth=1), Limits(path_bytes=2)]
)
def test_limits(tmp_path: Path, limits: Limits) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("xx")
    (tmp_path / "d" / "g").write_text("xx")
    examine(tmp_path)
    with pytest.raises(Problem):
        examine(tmp_path, limits)
