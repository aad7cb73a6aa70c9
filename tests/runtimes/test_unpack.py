"""Archives of strangers: what is evil in them is refused, and nothing ever appears outside of the tree."""

import io
import os
import random
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.tree import Limits, examine
from gpuaas.runtimes.unpack import Unpacking, flat, matches, merged

SMALL = Limits(entries=50, total_bytes=100_000, file_bytes=50_000, depth=8, path_bytes=200)


class Tar:
    """A tar, member by member."""

    def __init__(self, format: int = tarfile.PAX_FORMAT) -> None:
        self._out = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._out, mode="w", format=format)  # noqa: SIM115

    def add(
        self, name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", mode: int = 0o644, link: str = ""
    ) -> "Tar":
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
        self._tar.addfile(info, io.BytesIO(data))
        return self

    def bytes(self) -> bytes:
        self._tar.close()
        return self._out.getvalue()


def link(name: str, target: str) -> Tar:
    return Tar().add(name, tarfile.SYMTYPE, link=target)


def evil() -> Iterator[tuple[str, bytes]]:
    for name in ("/etc/x", "../x", "a/../../x", "./../x", "a/b/../../../x", "..", "a/..", "//x", "/"):
        yield f"name {name}", Tar().add(name, data=b"x").bytes()
        yield (
            f"directory {name}",
            Tar().add(name.rstrip("/") or "/", tarfile.DIRTYPE).add(f"{name}/y", data=b"x").bytes(),
        )
        yield f"link {name}", link(name, "y").bytes()
    for target in ("/etc", "/etc/passwd", "..", "../x", "a/../../x", "../../../../etc", "/", "./.././../x"):
        yield f"link to {target}", link("l", target).bytes()
        yield f"deep link to {target}", link("d/l", f"../{target}" if not target.startswith("/") else target).bytes()
        yield f"hard link to {target}", Tar().add("h", tarfile.LNKTYPE, link=target).bytes()
    for kind, called in (
        (tarfile.CHRTYPE, "character device"),
        (tarfile.BLKTYPE, "block device"),
        (tarfile.FIFOTYPE, "fifo"),
    ):
        yield called, Tar().add("d", kind).bytes()
        yield f"{called} over a file", Tar().add("d", data=b"x").add("d", kind).bytes()
    yield "through a link", link("d", "e").add("d/x", data=b"x").bytes()
    yield (
        "through a link to a directory",
        Tar().add("e", tarfile.DIRTYPE).add("d", tarfile.SYMTYPE, link="e").add("d/x").bytes(),
    )
    yield "a directory over a link", link("d", "e").add("d", tarfile.DIRTYPE).bytes()
    yield "a link over a directory", Tar().add("d", tarfile.DIRTYPE).add("d", tarfile.SYMTYPE, link="e").bytes()
    yield "through a file", Tar().add("f", data=b"x").add("f/x", data=b"x").bytes()
    yield "a hard link to a link", link("l", "m").add("h", tarfile.LNKTYPE, link="l").bytes()
    yield "a hard link to a directory", Tar().add("d", tarfile.DIRTYPE).add("h", tarfile.LNKTYPE, link="d").bytes()
    yield "a hard link to what comes later", Tar().add("h", tarfile.LNKTYPE, link="f").add("f", data=b"x").bytes()
    yield "too many", _many(60)
    yield "too large", Tar().add("f", data=b"x" * 60_000).bytes()
    yield (
        "too large together",
        Tar().add("f", data=b"x" * 45_000).add("g", data=b"x" * 45_000).add("h", data=b"x" * 45_000).bytes(),
    )
    yield "a long name", Tar().add("x" * 300).bytes()
    yield "truncated", Tar().add("f", data=b"x" * 40_000).bytes()[:20_000]
    yield "a damaged header", b"\x01" * 1024
    yield "a gzip bomb", _zipped(Tar().add("f", data=b"\0" * 5_000_000).bytes())
    yield "damaged gzip", _zipped(Tar().add("f", data=os.urandom(5000)).bytes())[:3000]
    yield "not an archive", b"hello"
    yield "nothing", b""
    sparse = Tar(tarfile.GNU_FORMAT).add("f", tarfile.GNUTYPE_SPARSE, data=b"").bytes()
    yield "sparse", sparse
    yield "a size that lies", _lying()


def _many(count: int) -> bytes:
    tar = Tar()
    for number in range(count):
        tar.add(f"f{number}")
    return tar.bytes()


def _zipped(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data)


def _lying() -> bytes:
    data = bytearray(Tar(tarfile.USTAR_FORMAT).add("f", data=b"x" * 100).bytes()[:1024])
    data[124:136] = b"00000007777\0"
    header = bytes(data[:148]) + b" " * 8 + bytes(data[156:512])
    data[148:156] = b"%06o\0 " % sum(header)
    return bytes(data)


EVIL = dict(evil())


def snapshot(place: Path) -> set[tuple[str, int]]:
    return {(str(path.relative_to(place)), path.lstat().st_mode) for path in place.rglob("*")}


@pytest.mark.parametrize("name", EVIL)
def test_an_evil_archive_is_refused_and_leaves_nothing_outside(tmp_path: Path, name: str) -> None:
    root = tmp_path / "deep" / "down" / "tree"
    root.parent.mkdir(parents=True)
    with pytest.raises(Problem) as refused:
        Unpacking(root, SMALL).tar(io.BytesIO(EVIL[name]))
    assert refused.value.code == "refused_content"
    assert {path for path, _ in snapshot(tmp_path) if not path.startswith("deep/down/tree")} == {"deep", "deep/down"}


def test_there_are_enough_of_them() -> None:
    assert len(EVIL) >= 60


def test_mutated_archives_are_refused_or_contained(tmp_path: Path) -> None:
    """Broken ones from a fixed seed: never anything but a tree that passes the examination, or a refusal."""
    random_ = random.Random(45)
    seeds = [data for data in EVIL.values() if len(data) < 12_000] + [
        Tar().add("bin/a", data=b"x" * 100, mode=0o755).add("lib/l", tarfile.SYMTYPE, link="../bin/a").bytes()
    ]
    outcomes = {"refused": 0, "taken": 0}
    for number in range(int(os.environ.get("GPUAAS_FUZZ", "10000"))):
        data = bytearray(random_.choice(seeds))
        for _ in range(random_.randint(1, 6)):
            if data:
                data[random_.randrange(min(len(data), 1536))] = random_.choice(
                    (0, 0x2E, 0x2F, 0x37, random_.randrange(256))
                )
        place = tmp_path / str(number)
        place.mkdir()
        try:
            Unpacking(place / "tree", SMALL).tar(io.BytesIO(bytes(data)))
            examine(place / "tree", SMALL)
            outcomes["taken"] += 1
        except Problem:
            outcomes["refused"] += 1
        assert os.listdir(place) == ["tree"]
        assert not [mode for _, mode in snapshot(place) if mode & (stat.S_ISUID | stat.S_ISGID) or stat.S_ISCHR(mode)]
    assert min(outcomes.values()) > 0, outcomes


def zipped(how: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for number, size in enumerate((300, 0, 2000)):
            archive.writestr(f"lib/f{number}.py", bytes(random.Random(number).choices(b"abc ", k=size)))
        archive.writestr("lib/empty/", "")
    return out.getvalue()


def test_mutated_zips_are_refused_or_contained(tmp_path: Path) -> None:
    """Wheels are zips; all four ways to compress have errors of their own."""
    random_ = random.Random(45)
    seeds = [zipped(how) for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)]
    outcomes = {"refused": 0, "taken": 0}
    for number in range(int(os.environ.get("GPUAAS_FUZZ", "10000")) // 4):
        data = bytearray(random_.choice(seeds))
        for _ in range(random_.randint(1, 6)):
            data[random_.randrange(len(data))] = random_.choice((0, 0x2E, 0x2F, 0xFF, random_.randrange(256)))
        if random_.random() < 0.1:
            del data[random_.randrange(len(data)) :]
        place = tmp_path / str(number)
        place.mkdir()
        (tmp_path / "z").write_bytes(data)
        try:
            Unpacking(place / "tree", SMALL).zip(tmp_path / "z", ".")
            examine(place / "tree", SMALL)
            outcomes["taken"] += 1
        except Problem:
            outcomes["refused"] += 1
        assert os.listdir(place) == ["tree"]
        assert not [mode for _, mode in snapshot(place) if mode & (stat.S_ISUID | stat.S_ISGID) or stat.S_ISLNK(mode)]
    assert min(outcomes.values()) > 0, outcomes


def test_what_is_good_arrives(tmp_path: Path) -> None:
    tar = Tar().add("pkg/bin/a", data=b"#!", mode=0o4755).add("pkg/bin/b", tarfile.LNKTYPE, link="pkg/bin/a")
    tar.add("pkg/lib/l", tarfile.SYMTYPE, link="../bin/a").add("pkg/doc/x", data=b"x").add("pkg/f", data=b"1", mode=0)
    Unpacking(tmp_path / "t", leave_out=["opt/doc"]).tar(io.BytesIO(tar.bytes()), into="opt", strip=1)
    found = {entry.path: entry for entry in examine(tmp_path / "t")}
    assert set(found) == {"opt", "opt/bin", "opt/bin/a", "opt/bin/b", "opt/lib", "opt/lib/l", "opt/f"}
    assert (found["opt/bin/a"].mode, found["opt/f"].mode) == (0o755, 0o644), "no setuid, readable by all"
    assert found["opt/bin/a"].sha256 == found["opt/bin/b"].sha256


def test_a_later_archive_replaces_files_only(tmp_path: Path) -> None:
    unpacking = Unpacking(tmp_path / "t")
    unpacking.tar(io.BytesIO(Tar().add("a", data=b"1").add("l", tarfile.SYMTYPE, link="a").bytes()))
    unpacking.tar(io.BytesIO(Tar().add("l", data=b"2").bytes()))
    assert (tmp_path / "t" / "a").read_text() == "1", "the link was replaced, not followed"
    assert (tmp_path / "t" / "l").read_text() == "2"


@pytest.mark.parametrize(
    ("layout", "name", "target", "path", "leads_to"),
    [
        (flat, "./usr/lib/x/l", "/etc/x", "lib/x/l", "../../etc/x"),
        (flat, "./usr/lib/l", "../../lib/y", "lib/l", "y"),
        (flat, "./usr/lib/l", "../../../../../lib/y", "lib/l", "y"),
        (flat, "./etc/l", "/usr/share/z", "etc/l", "../share/z"),
        (merged, "./lib64/l", "/lib/y", "usr/lib64/l", "../lib/y"),
        (merged, "./bin/l", "sh", "usr/bin/l", "sh"),
    ],
)
def test_a_package_of_a_system_is_laid_out(
    tmp_path: Path, layout: object, name: str, target: str, path: str, leads_to: str
) -> None:
    Unpacking(tmp_path).tar(io.BytesIO(link(name, target).bytes()), layout=layout)  # type: ignore[arg-type]
    assert os.readlink(tmp_path / path) == leads_to


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_an_evil_zip(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(Problem):
        Unpacking(tmp_path / "t").zip(tmp_path / "z", "wheel")
    assert {path for path, _ in snapshot(tmp_path)} <= {"z", "t"}


def test_a_zip_bomb_and_a_link_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("f", b"\0" * 10_000_000)
    with pytest.raises(Problem, match="more than"):
        Unpacking(tmp_path / "t", SMALL).zip(tmp_path / "bomb", ".")
    info = zipfile.ZipInfo("l")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "link", "w") as archive:
        archive.writestr(info, "/etc")
    with pytest.raises(Problem, match="not a plain file"):
        Unpacking(tmp_path / "t", SMALL).zip(tmp_path / "link", ".")


def test_patterns() -> None:
    assert matches("share/doc/a/b", ["share/doc"])
    assert matches("lib/x.a", ["lib/*.a"])
    assert not matches("lib/x/y.a", ["lib/*.a"])
    assert not matches("share/docs", ["share/doc"])
