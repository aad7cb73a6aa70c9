import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host import limits
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.mounts import idmaps, mounts
from gpuaas.node.host.mounts.mounts import Attribute
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import Bind, Directory
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.rootfs import Rootfs
from node.samples import ID, OTHER_ID, body
from root.conftest import needs

pytestmark = needs("mkfs.ext4", "nsenter", "setpriv")
SIZE_MIB = 256
BODY = body(FakeHost())
BASE = BODY.uid_base
Inside = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=sorted(limits.LIMITS))
def limit(request: pytest.FixtureRequest) -> limits.Limit:
    return limits.LIMITS[request.param]


@pytest.fixture
def rootfs(paths: Paths, small_images: Images, namespaces: Namespaces, limit: limits.Limit) -> Rootfs:
    return Rootfs(paths, small_images, namespaces, limit, SIZE_MIB)


def left(paths: Paths) -> list[str]:
    """What there still is of the machine, except what an agent clears away when it starts."""
    kept = [path for path in paths.layers.iterdir() if not path.name.startswith(("blank-", "spare-", ".writing-"))]
    return [str(path) for path in (*kept, paths.live(ID), paths.pin(ID)) if path.exists()]


def test_a_machine_has_a_file_system_of_its_own(rootfs: Rootfs, paths: Paths, namespaces: Namespaces) -> None:
    rootfs.ensure(ID, BODY)
    assert rootfs.ids() == {ID}
    assert mounts.at(rootfs.path(ID)) is None
    mine = [each for each in namespaces.mounts(ID) if each.target.startswith(str(paths.run))]
    assert [each.target for each in mine] == [str(rootfs.path(ID))]
    assert (mine[0].filesystem, mine[0].attributes, mine[0].propagation) == ("overlay", Attribute.NODEV, frozenset())
    assert str(paths.state) not in str(mine[0])
    rootfs.check(ID)
    rootfs.remove(ID)
    assert rootfs.ids() == set()
    assert left(paths) == []


def test_what_is_written_inside_belongs_to_the_range(rootfs: Rootfs, paths: Paths, inside: Inside) -> None:
    rootfs.ensure(ID, BODY)
    root = rootfs.path(ID)
    assert inside(ID, "stat", "-c", "%u:%g", f"{root}/etc/passwd").stdout == f"{BASE}:{BASE}\n"
    assert inside(ID, "stat", "-c", "%u", f"{root}/home/gpu").stdout == f"{BASE + 1000}\n"
    script = f"umask 022 && echo new > {root}/etc/new && echo more >> {root}/etc/passwd && rm {root}/etc/group"
    assert inside(ID, "sh", "-c", script, user=BASE).returncode == 0
    assert inside(ID, "stat", "-c", "%u %a", f"{root}/etc/new").stdout == f"{BASE} 644\n"
    assert inside(ID, "touch", f"{root}/etc/new", user=1000).returncode != 0
    image = Images(paths).tree(rootfs.layer(ID).image)  # type: ignore[union-attr]
    assert "more" not in (image / "etc/passwd").read_text()
    assert (image / "etc/group").exists()
    assert not (image / "etc/new").exists()
    rootfs.remove(ID)


def test_a_layer_outlives_its_mounts(rootfs: Rootfs, namespaces: Namespaces, inside: Inside) -> None:
    rootfs.ensure(ID, BODY)
    root = rootfs.path(ID)
    for command in (
        ["sh", "-c", f"echo kept > {root}/etc/kept"],
        ["chmod", "700", root],
        ["mv", f"{root}/etc", f"{root}/x"],
    ):
        assert inside(ID, *map(str, command), user=BASE).returncode == 0
    namespaces.remove(ID)  # a reboot
    rootfs.ensure(ID, BODY)
    assert inside(ID, "cat", f"{root}/x/kept").stdout == "kept\n"
    assert inside(ID, "stat", "-c", "%a %u", str(root)).stdout == f"700 {BASE}\n"
    with pytest.raises(HostError, match="/etc") as refused:
        rootfs.check(ID)
    assert not refused.value.transient
    rootfs.remove(ID)


def test_twice_is_once(rootfs: Rootfs, namespaces: Namespaces, inside: Inside) -> None:
    rootfs.ensure(ID, BODY)
    before = namespaces.mounts(ID)
    layer = rootfs.layer(ID)
    rootfs.ensure(ID, BODY)
    assert (namespaces.mounts(ID), rootfs.layer(ID)) == (before, layer)
    rootfs.remove(ID)
    rootfs.remove(ID)
    rootfs.ensure(ID, BODY)
    assert inside(ID, "ls", f"{rootfs.path(ID)}/etc/new").returncode != 0
    rootfs.remove(ID)


def test_removing_what_never_was_is_success(rootfs: Rootfs, paths: Paths) -> None:
    rootfs.remove(ID)
    assert left(paths) == []


@pytest.mark.parametrize("after", ["claim", "directory", "image", "pin file", "mount points", "garbage", "removal"])
@pytest.mark.parametrize("then", ["ensure", "remove"])
def test_any_half_of_it_can_be_finished_or_removed(
    rootfs: Rootfs, paths: Paths, namespaces: Namespaces, limit: limits.Limit, after: str, then: str
) -> None:
    """What a crash can leave, planted by hand."""
    rootfs.ensure(ID, BODY)
    record = (paths.layers / f"{ID}.json").read_bytes()
    rootfs.remove(ID)
    (paths.layers / f"{ID}.json").write_bytes(record)
    layer = paths.layer(ID)
    if after != "claim":
        layer.mkdir()
    match after:
        case "image":
            limit.prepare(layer, SIZE_MIB)
        case "pin file":
            paths.pin(ID).touch()
        case "mount points":
            (paths.make_live(ID) / "lower").mkdir()
        case "garbage":
            (layer / "disk.ext4.new").write_bytes(b"half a disk")
        case "removal":
            (paths.layers / f".removing-{ID}/d0").mkdir(parents=True)
    if then == "ensure":
        rootfs.ensure(ID, BODY)
        assert mounts.at(rootfs.path(ID), namespaces.mounts(ID))
    rootfs.remove(ID)
    assert left(paths) == []


def test_a_damaged_record_can_be_removed_and_stops_nobody_else(rootfs: Rootfs, paths: Paths) -> None:
    rootfs.ensure(ID, BODY)
    (paths.layers / f"{ID}.json").write_bytes(b'{"uid_base": 1')
    with pytest.raises(HostError, match="damaged"):
        rootfs.ensure(ID, BODY)
    rootfs.ensure(OTHER_ID, body(FakeHost(), seat=1))
    rootfs.remove(ID)
    rootfs.remove(OTHER_ID)
    assert left(paths) == []


def test_ids_belong_to_one_machine(rootfs: Rootfs, paths: Paths) -> None:
    rootfs.ensure(ID, BODY)
    for base in (BASE, BASE + 65535, BASE - 1):
        with pytest.raises(HostError, match="ids"):
            rootfs.ensure(OTHER_ID, body(FakeHost(), uid_base=base))
    assert rootfs.ids() == {ID}
    with pytest.raises(HostError, match="made for ids") as refused:
        rootfs.ensure(ID, body(FakeHost(), uid_base=BASE + 65536))
    assert not refused.value.transient
    rootfs.remove(ID)
    rootfs.ensure(OTHER_ID, BODY)
    rootfs.remove(OTHER_ID)


def test_an_image_that_is_missing_claims_nothing(rootfs: Rootfs) -> None:
    with pytest.raises(HostError, match="does not have it"):
        rootfs.ensure(ID, body(FakeHost(), image="other"))
    assert rootfs.ids() == set()


def test_nothing_is_taken_from_a_running_machine(rootfs: Rootfs, namespaces: Namespaces) -> None:
    rootfs.ensure(ID, BODY)
    switch = ["setpriv", f"--reuid={BASE + 5}", "--clear-groups", "sleep", "60"]
    process = subprocess.Popen(namespaces.command(ID, switch))
    while not idmaps.processes(BASE):
        time.sleep(0.01)
    with pytest.raises(HostError, match=f"running.*{process.pid}"):
        rootfs.remove(ID)
    namespaces.remove(ID)  # a pin that is lost must not lead to a second mount of the same layer
    with pytest.raises(HostError, match="running"):
        rootfs.ensure(ID, BODY)
    process.kill()
    process.wait()
    rootfs.ensure(ID, BODY)
    rootfs.remove(ID)


def test_a_disk_that_somebody_holds_is_not_deleted(paths: Paths, small_images: Images, namespaces: Namespaces) -> None:
    rootfs = Rootfs(paths, small_images, namespaces, limits.LIMITS["image"], SIZE_MIB, release_seconds=0.1)
    rootfs.ensure(ID, BODY)
    fd = namespaces.open(ID, rootfs.path(ID))
    for call in (lambda: rootfs.remove(ID), lambda: rootfs.ensure(ID, BODY)):
        with pytest.raises(HostError, match="still mounted"):
            call()
    os.close(fd)
    rootfs.ensure(ID, BODY)
    rootfs.remove(ID)
    assert left(paths) == []


def test_the_disk_has_a_limit(paths: Paths, small_images: Images, namespaces: Namespaces, inside: Inside) -> None:
    rootfs = Rootfs(paths, small_images, namespaces, limits.LIMITS["image"], SIZE_MIB)
    rootfs.ensure(ID, BODY)
    file = f"{rootfs.path(ID)}/etc/large"
    full = inside(ID, "dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={2 * SIZE_MIB}", user=BASE)
    assert "No space left" in full.stderr
    disk = paths.layer(ID) / "disk.ext4"
    assert disk.stat().st_size == SIZE_MIB * 1024 * 1024
    assert stat.S_IMODE(disk.stat().st_mode) == 0o600
    inside(ID, "sh", "-c", f"rm {file} && sync -f {rootfs.path(ID)}", user=BASE)
    rootfs.remove(ID)
    assert left(paths) == []


def test_a_full_disk_leaves_nothing_half_made(
    paths: Paths, small_images: Images, work: Path, limit: limits.Limit
) -> None:
    """On a file system of its own, which the helper must find too."""
    fd = mounts.filesystem("tmpfs", {"size": "8m"}, Attribute.NONE)
    (work / "full").mkdir()
    mounts.attach(fd, work / "full")
    os.close(fd)
    own = Paths(work / "full", paths.run, paths.images)
    namespaces = Namespaces(own)
    rootfs = Rootfs(own, small_images, namespaces, limit, SIZE_MIB)
    try:
        rootfs.ensure(ID, BODY)
        with pytest.raises(OSError, match="No space"):
            (work / "full/filler").write_bytes(b"x" * 16 * 1024 * 1024)
        with pytest.raises(HostError, match="No space left"):
            rootfs.ensure(OTHER_ID, body(FakeHost(), seat=1))
        assert not namespaces.pinned(OTHER_ID)
        (work / "full/filler").unlink()
        rootfs.ensure(OTHER_ID, body(FakeHost(), seat=1))
    finally:
        for id in (ID, OTHER_ID):
            rootfs.remove(id)
        namespaces.clear()
        mounts.unmount(work / "full", lazy=True)  # the agent's records are there


def test_a_new_disk_takes_no_room(paths: Paths, small_images: Images, namespaces: Namespaces) -> None:
    rootfs = Rootfs(paths, small_images, namespaces, limits.LIMITS["image"], 1024 * 1024)
    rootfs.ensure(ID, BODY)
    assert (paths.layer(ID) / "disk.ext4").stat().st_blocks * 512 < 4 * 1024 * 1024
    rootfs.remove(ID)


def test_spare_disks_are_taken_once_and_made_while_nobody_waits(
    paths: Paths, small_images: Images, namespaces: Namespaces, inside: Inside
) -> None:
    rootfs = Rootfs(paths, small_images, namespaces, limits.LIMITS["image"], SIZE_MIB)

    def spares() -> list[int]:
        return sorted(path.stat().st_ino for path in paths.layers.glob(f"{limits.SPARE}*.ext4"))

    rootfs.ensure(ID, BODY)  # there is none yet
    rootfs.remove(ID)
    for _ in range(limits.SPARES + 2):
        rootfs.rest()
    made = spares()
    assert len(made) == limits.SPARES
    rootfs.ensure(ID, BODY)
    taken = (paths.layer(ID) / "disk.ext4").stat().st_ino
    assert sorted([*spares(), taken]) == made
    assert inside(ID, "touch", f"{rootfs.path(ID)}/file", user=BASE).returncode == 0
    rootfs.close(ID)
    rootfs.ensure(ID, BODY)  # its own again, not another one
    assert (paths.layer(ID) / "disk.ext4").stat().st_ino == taken
    assert inside(ID, "test", "-e", f"{rootfs.path(ID)}/file").returncode == 0
    rootfs.remove(ID)
    rootfs.rest()
    assert len(spares()) == limits.SPARES
    assert left(paths) == []


def test_a_hostile_layer_is_removed(rootfs: Rootfs, paths: Paths, inside: Inside, work: Path) -> None:
    (work / "canary").mkdir()
    (work / "canary/file").touch()
    rootfs.ensure(ID, BODY)
    script = """
import os, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "link")
os.symlink(sys.argv[2], "etc/link")
os.mkfifo("fifo")
os.mkdir("shut", 0)
for _ in range(1200):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
"""
    root = str(rootfs.path(ID))
    made = inside(ID, sys.executable, "-c", script, root, str(work / "canary"), user=BASE)
    assert made.returncode == 0, made.stderr
    rootfs.remove(ID)
    assert left(paths) == []
    assert (work / "canary/file").exists()


def test_other_things_of_the_machine_are_left_alone(rootfs: Rootfs, paths: Paths, namespaces: Namespaces) -> None:
    rootfs.ensure(ID, BODY)
    keys = paths.live(ID) / "keys"
    keys.mkdir()
    namespaces.change(ID, [Directory(str(keys / "in")), Bind(str(paths.state), str(keys / "in"))])
    rootfs.remove(ID)
    assert keys.is_dir()
    (keys / "in").rmdir()
    keys.rmdir()
    rootfs.remove(ID)
    assert left(paths) == []


AGENT = """
import sys
from pathlib import Path
from gpuaas.node.host import limits
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.rootfs import Rootfs
from node.samples import ID, body
state, run, base, limit, size = sys.argv[1:]
paths = Paths(Path(state), Path(run))
rootfs = Rootfs(paths, Images(paths, base), Namespaces(paths), limits.LIMITS[limit], int(size))
print("ready", flush=True)
while True:
    rootfs.ensure(ID, body(FakeHost()))
    rootfs.remove(ID)
"""


def test_an_agent_killed_at_any_moment_does_no_harm(
    rootfs: Rootfs, paths: Paths, small_images: Images, namespaces: Namespaces, limit: limits.Limit
) -> None:
    rng = random.Random(3)
    arguments = [str(paths.state), str(paths.run), small_images.current(), limit.name, str(SIZE_MIB)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", AGENT, *arguments], stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.05, 0.6))
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if rng.random() < 0.5:
            rootfs.ensure(ID, BODY)
            assert mounts.at(rootfs.path(ID), namespaces.mounts(ID))
        rootfs.remove(ID)
        assert left(paths) == []


@needs("mmdebstrap", "nsenter", "chroot")
def test_a_login_works_on_the_real_image(base_image: Images, paths: Paths, namespaces: Namespaces) -> None:
    rootfs = Rootfs(paths, base_image, namespaces, limits.named(limits.DEFAULT))
    rootfs.ensure(ID, BODY)
    userns = idmaps.user_namespace(BASE)
    user = [f"--user=/proc/self/fd/{userns}", "--setuid=0", "--setgid=0"]
    script = "id -u && sudo -n id -u && sudo -n cat /etc/shadow | grep -c gpu && touch ~/mine && stat -c %u ~/mine"
    command = [*user, "chroot", str(rootfs.path(ID)), "su", "-", "gpu", "-c", script]
    done = subprocess.run(
        [
            "unshare",
            "--uts",
            "sh",
            "-c",
            'hostname machine && exec "$@"',
            "sh",
            "nsenter",
            f"--mount={paths.pin(ID)}",
            *command,
        ],
        pass_fds=[userns],
        capture_output=True,
        text=True,
    )
    os.close(userns)
    assert (done.stdout.split(), done.stderr) == (["1000", "0", "1", "1000"], "")
    fd = namespaces.open(ID, rootfs.path(ID) / "home/gpu/mine")
    assert os.fstat(fd).st_uid == BASE + 1000
    os.close(fd)
    rootfs.remove(ID)
