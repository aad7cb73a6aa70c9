import contextlib
import gzip
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host import safepath
from gpuaas.node.host.images import archives, debian
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.images.tree import Owner, Tree
from gpuaas.node.host.images.unpack import Budget
from gpuaas.node.host.paths import Paths
from root.conftest import SMALLEST, Entry, directory, entry, link, needs, tarball


def unpacked(work: Path, entries: list[Entry], budget: Budget | None = None) -> Path:
    target = work / "unpacked"
    target.mkdir()
    with safepath.root(target) as fd:
        archives.unpack(tarball(work / "some.tar", entries), Tree(fd), work, budget)
    return target


def oci(work: Path, layers: list[list[Entry]], compress: str = "gzip") -> Path:
    """An OCI archive of these layers."""

    def blob(data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        blobs.append(entry(f"blobs/sha256/{digest}", data))
        return f"sha256:{digest}"

    blobs: list[Entry] = []
    digests = []
    for entries in layers:
        data = tarball(work / "layer.tar", entries).read_bytes()
        if compress == "zstd":
            data = subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout
        digests.append(blob(gzip.compress(data) if compress == "gzip" else data))
    manifest = blob(json.dumps({"layers": [{"digest": digest} for digest in digests]}).encode())
    nested = blob(json.dumps({"manifests": [{"digest": manifest}]}).encode())
    other = {"digest": "sha256:" + "0" * 64, "platform": {"architecture": "sparc", "os": "linux"}}
    index = json.dumps({"manifests": [other, {"digest": nested}]}).encode()
    return tarball(work / "oci.tar", [entry("oci-layout", b"{}"), *blobs, entry("index.json", index)])


# unpacking


def test_keeps_what_an_image_is_made_of(work: Path) -> None:
    capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0".decode("latin-1")
    # As GNU tar and buildkit write it; other attributes must not come along.
    pax = {"SCHILY.xattr.security.capability": capability, "SCHILY.xattr.trusted.overlay.redirect": "/"}
    tree = unpacked(
        work,
        [
            directory("./usr/bin", 0o755),
            entry("usr/bin/sudo", b"#!", mode=0o4755, mtime=1_000_000_000),
            entry("usr/bin/ping", b"#!", mode=0o755, pax_headers=pax),
            link("bin", "usr/bin"),
            entry("bin/through", b"x", uid=5, gid=6),
            link("usr/bin/same", "usr/bin/sudo", tarfile.LNKTYPE),
            link("absolute", "/etc/passwd"),
            directory("tmp", 0o1777),
            entry("/leading", b"x"),
        ],
    )
    sudo = (tree / "usr/bin/sudo").stat()
    assert (stat.S_IMODE(sudo.st_mode), sudo.st_mtime, sudo.st_nlink) == (0o4755, 1_000_000_000, 2)
    assert os.listxattr(tree / "usr/bin/ping") == ["security.capability"]
    through = (tree / "usr/bin/through").stat()
    assert (through.st_uid, through.st_gid) == (5, 6)
    assert os.readlink(tree / "absolute") == "/etc/passwd"
    assert stat.S_IMODE((tree / "tmp").stat().st_mode) == 0o1777
    assert (tree / "leading").exists()


@pytest.mark.parametrize(
    "evil",
    [
        [link("out", "../.."), entry("out/canary", b"evil")],
        [link("out", "/"), entry("out/canary", b"evil")],
        [link("canary", "../canary"), entry("canary", b"evil")],
        [link("out", "../canary"), link("hard", "out", tarfile.LNKTYPE), entry("hard", b"evil")],
        [link("a", "b"), link("b", "a"), entry("a/x", b"evil")],
        [link("out", "/proc/self/root"), entry("out/canary", b"evil")],
        [directory("d"), link("d", ".."), entry("d/canary", b"evil")],
    ],
    ids=str,
)
def test_nothing_is_written_outside(work: Path, evil: list[Entry]) -> None:
    (work / "canary").write_text("canary")
    with contextlib.suppress(HostError):
        unpacked(work, evil)
    assert (work / "canary").read_text() == "canary"
    assert sorted(os.listdir(work)) == ["canary", "some.tar", "unpacked"]
    assert not Path("/canary").exists()


@pytest.mark.parametrize(
    "evil",
    [
        entry("../canary", b"evil"),
        entry("a/../../canary", b"evil"),
        link("hard", "../canary", tarfile.LNKTYPE),
        link("hard", "nowhere", tarfile.LNKTYPE),
        entry("foreign", b"x", uid=65536),
        entry("foreign", b"x", gid=2**31),
    ],
    ids=str,
)
def test_what_no_image_has_is_refused(work: Path, evil: Entry) -> None:
    with pytest.raises(HostError):
        unpacked(work, [entry("good", b"x"), evil])


@pytest.mark.parametrize(
    "odd", [entry("a/" * 1500 + "b"), entry("time", mtime=2**70), entry("n" * 300), entry("a\nb\udc80")]
)
def test_what_is_only_odd_is_taken_or_refused(work: Path, odd: Entry) -> None:
    with contextlib.suppress(HostError):
        unpacked(work, [odd])


def test_devices_and_pipes_are_left_out(work: Path) -> None:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE)
    tree = unpacked(work, [entry(f"dev/{kind.decode()}", type=kind, devmajor=1, devminor=3) for kind in kinds[:3]])
    assert os.listdir(tree) == []


def test_too_much_is_refused(work: Path) -> None:
    with pytest.raises(HostError, match="more than"):
        unpacked(work, [entry("large", b"x" * 2000)], Budget(bytes=1000))
    shutil.rmtree(work / "unpacked")
    with pytest.raises(HostError, match="more than"):
        unpacked(work, [entry(f"f{number}") for number in range(20)], Budget(entries=10))


def test_later_entries_replace_earlier_ones(work: Path) -> None:
    tree = unpacked(
        work,
        [
            entry("a/deep/file", b"1"),
            entry("a", b"now a file"),
            link("b", "a"),
            directory("b"),
            entry("c", b"1"),
            entry("c", b"2"),
        ],
    )
    assert (tree / "a").read_bytes() == b"now a file"
    assert (tree / "b").is_dir()
    assert not (tree / "b").is_symlink()
    assert (tree / "c").read_bytes() == b"2"


@pytest.mark.parametrize("compress", ["none", "gzip", pytest.param("zstd", marks=needs("zstd"))])
def test_layers_take_away_what_is_below_them(work: Path, compress: str) -> None:
    below = [entry("keep/old", b"1"), entry("gone/file", b"1"), entry("hidden/old", b"1"), entry("file", b"1")]
    above = [entry("hidden/new", b"2"), entry("hidden/.wh..wh..opq"), entry(".wh.gone"), entry("keep/.wh.none")]
    archive = oci(work, [below, [*above, entry("file", b"2")]], compress)
    (work / "unpacked").mkdir()
    with safepath.root(work / "unpacked") as fd:
        archives.unpack(archive, Tree(fd), work)
    files = {
        str(path.relative_to(work / "unpacked")): path.read_bytes()
        for path in work.glob("unpacked/**/*")
        if path.is_file()
    }
    assert files == {"keep/old": b"1", "hidden/new": b"2", "file": b"2"}


def test_a_layer_with_another_digest_is_refused(work: Path) -> None:
    data = bytearray(oci(work, [[entry("file", b"1" * 1000)]], "none").read_bytes())
    data[data.index(b"1" * 1000)] ^= 1
    (work / "oci.tar").write_bytes(data)
    (work / "unpacked").mkdir()
    with safepath.root(work / "unpacked") as fd, pytest.raises(HostError, match="digest is wrong"):
        archives.unpack(work / "oci.tar", Tree(fd), work)
    assert os.listdir(work / "unpacked") == []


NO_ARCHIVES = {
    "empty": b"",
    "text": b"no archive",
    "broken zstd": b"\x28\xb5\x2f\xfd broken",
    "gzip of no tar": gzip.compress(b"x" * 1000),
    "cut gzip": gzip.compress(random.Random(1).randbytes(3000))[:2000],
}


@pytest.mark.parametrize("data", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_what_is_no_archive_is_refused(work: Path, paths: Paths, data: bytes) -> None:
    (work / "odd").write_bytes(data)
    with pytest.raises(HostError):
        Images(paths).import_archive(work / "odd", "odd")
    assert Images(paths).versions() == []
    assert os.listdir(paths.images) == [".lock"]


# the store


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_becomes_an_image(work: Path, paths: Paths, mode: str) -> None:
    images = Images(paths)
    archive = tarball(work / "some.tar", SMALLEST, mode)
    version = images.import_archive(archive, "mine")
    assert images.versions() == [version]
    assert images.resolve(version) == version
    before = _listing(images.tree(version))
    assert images.import_archive(archive, "mine") == version
    assert _listing(images.tree(version)) == before
    assert Images(paths, base=version).current() == version
    assert Images(paths, base=version).ensure() == version
    assert stat.S_IMODE(paths.images.stat().st_mode) == 0o700


def test_every_image_has_a_login_and_nothing_of_its_builder(work: Path, paths: Paths) -> None:
    more = [
        entry("etc/passwd", b"root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n"),
        link("etc/resolv.conf", "/run/systemd/resolve"),
        entry("etc/machine-id", b"0123"),
        entry("etc/ssh/ssh_host_rsa_key", b"secret"),
        entry("etc/skel/.profile", b"profile"),
        link("run", "/var/run"),
        entry("dev/null", b"not a device"),
        link("home", "/nowhere"),
    ]
    images = Images(paths)
    tree = images.tree(images.import_archive(tarball(work / "some.tar", [*SMALLEST, *more]), "mine"))
    users = [line.split(":")[0] for line in (tree / "etc/passwd").read_text().splitlines()]
    assert users == ["root", "gpu"]
    assert (tree / "etc/machine-id").read_bytes() == b""
    assert not (tree / "etc/resolv.conf").is_symlink()
    assert os.listdir(tree / "etc/ssh") == []
    assert os.listdir(tree / "dev") == []
    assert sorted(os.listdir(tree / "run")) == ["lock", "sshd"]
    assert (tree / "home/gpu").stat().st_uid == 1000
    assert (tree / "home/gpu/.profile").read_bytes() == b"profile"
    shadow = (tree / "etc/shadow").stat()
    assert (shadow.st_gid, stat.S_IMODE(shadow.st_mode)) == (42, 0o640)
    with safepath.root(tree) as fd:
        safepath.real_directories(fd)


def test_an_image_without_sshd_is_refused(work: Path, paths: Paths) -> None:
    archive = tarball(work / "some.tar", [each for each in SMALLEST if "sshd" not in each[0]])
    with pytest.raises(HostError, match="lacks openssh-server"):
        Images(paths).import_archive(archive, "mine")
    assert Images(paths).versions() == []


@pytest.mark.parametrize("name", ["", "../x", "Upper", "a/b", "x" * 50])
def test_a_name_that_is_a_path_is_refused(work: Path, paths: Paths, name: str) -> None:
    with pytest.raises(HostError, match="not a name"):
        Images(paths).import_archive(tarball(work / "some.tar", SMALLEST), name)


def test_what_a_killed_build_has_left_is_no_image(work: Path, paths: Paths) -> None:
    archive = tarball(work / "some.tar", SMALLEST)
    half = paths.images / ".building-mine-0123456789abcdef"
    (half / "rootfs/etc").mkdir(parents=True)
    (half / "image.json").touch()
    (paths.images / ".removing-.building-other-0123456789abcdef/d0").mkdir(parents=True)
    (paths.images / "mine-0123456789abcdef/rootfs").mkdir(parents=True)  # without its record
    assert Images(paths).versions() == []
    version = Images(paths).import_archive(archive, "mine")
    assert sorted(os.listdir(paths.images)) == sorted([".lock", "mine-0123456789abcdef", version])


def test_an_image_that_is_not_here_is_not_built_by_a_launch(paths: Paths) -> None:
    images = Images(paths)
    for label in ("base", "other", "../../etc", debian.version()):
        with pytest.raises(HostError, match="does not have it"):
            images.resolve(label)
    with pytest.raises(HostError, match="import it"):
        images.ensure("other-0123456789abcdef")
    assert not paths.images.exists()


def test_a_tree_reads_as_a_program_inside_would(work: Path) -> None:
    (work / "tree/etc").mkdir(parents=True)
    with safepath.root(work / "tree") as fd:
        tree = Tree(fd)
        tree.symlink("etc/passwd", "/etc/real", Owner())
        tree.file("etc/real", b"inside", Owner())
        assert tree.read("etc/passwd") == b"inside"
        assert tree.read("etc") == tree.read("nowhere") == tree.read("etc/real/below") == b""
        tree.remove("nowhere/below")
        tree.remove("etc")
    assert os.listdir(work / "tree") == []


# our own


def test_the_version_is_that_of_the_recipe() -> None:
    assert debian.version() == debian.version()
    assert debian.version().startswith("base-")


@needs("apt-get")
def test_the_mirrors_are_those_of_this_machine() -> None:
    for line in debian.sources():
        kind, uri, suite, component = line.split()
        assert (kind, component) == ("deb", "main")
        assert uri.startswith(("http://", "https://", "file:", "mirror"))
        assert suite.startswith(debian.SUITE)


@needs("mmdebstrap")
def test_the_base_image_is_complete(base_image: Images) -> None:
    version = base_image.ensure()
    assert version in base_image.versions()
    tree = base_image.tree(base_image.resolve("base"))
    for program in ("usr/sbin/sshd", "usr/bin/sudo", "usr/bin/git", "usr/bin/tmux", "usr/bin/rsync", "usr/bin/python3"):
        assert (tree / program).exists()
    assert stat.S_IMODE((tree / "usr/bin/sudo").stat().st_mode) == 0o4755
    assert "gpu:x:1000:1000" in (tree / "etc/passwd").read_text()
    assert (tree / "etc/sudoers.d/gpu").stat().st_mode & 0o777 == 0o440
    assert (tree / "etc/machine-id").read_bytes() == b""
    assert (tree / "etc/hostname").read_text() == "machine\n"
    assert not list(tree.glob("etc/ssh/ssh_host_*"))
    assert os.listdir(tree / "dev") == []
    assert not (tree / "etc/apt/apt.conf.d/99mmdebstrap").exists()
    with safepath.root(tree) as fd:
        safepath.real_directories(fd)


BUILD = """
import sys
from pathlib import Path
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.paths import Paths
Images(Paths(Path(sys.argv[1]), Path(sys.argv[1]))).ensure()
"""


@needs("mmdebstrap", "setpriv", "unshare")
def test_a_killed_build_leaves_no_process_and_no_mount(paths: Paths) -> None:
    """What it has written is cleared away by the next; the check of every test looks for the rest."""
    process = subprocess.Popen([sys.executable, "-c", BUILD, str(paths.state)])
    building = paths.images / f".building-{debian.version()}"
    while not (building / "rootfs/etc/apt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert Images(paths).versions() == []
    with pytest.raises(HostError):
        Images(paths).import_archive(paths.state, "none")
    assert building.exists()


@needs("mmdebstrap", "chroot")
def test_nothing_in_the_base_image_is_of_another_kind(base_image: Images) -> None:
    tree = base_image.tree(base_image.current())
    odd = []
    for parent, directories, files in os.walk(tree):
        for name in (*directories, *files):
            info = os.lstat(os.path.join(parent, name))
            plain = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode)
            if not plain or max(info.st_uid, info.st_gid) > 65535:
                odd.append(name)
    assert odd == []


def _listing(tree: Path) -> list[tuple[str, int, float]]:
    found = ((path, path.lstat()) for path in sorted(tree.glob("**/*")))
    return [(str(path), info.st_mode, info.st_ctime) for path, info in found]
