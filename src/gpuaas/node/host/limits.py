"""How much an allocation may write: drivers, because kernels and machines differ.

  image   a sparse ext4 file of the allowed size, mounted through a loop device
  none    a plain directory: no limit, only for whoever asks for it

(Project quotas would be a third.) A layer keeps the driver that it was made with. A host that cannot do what it was
asked for takes no machines: nothing is silently unlimited.
"""

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from gpuaas.kit.errors import HostError
from gpuaas.node.host.command import SEARCH_PATH, Done, run
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import loops
from gpuaas.node.host.mounts.operations import AnyOperation, Bind, Image

SPARE = "spare-"  # begins the names of images that nobody has yet
SPARES = 4
DEFAULT = "image"
_MIB = 1024 * 1024
# One group of inode tables in 256 and two copies of the superblock: the file stays below a MiB until it is used.
# Tables and journal of a sparse file are zero already.
_MKFS = ["mkfs.ext4", "-q", "-F", "-m", "0", "-G", "256", "-O", "sparse_super2,^resize_inode"]
_MKFS_SECONDS = 120.0
_MKFS_EXTENDED = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"


class Limit(Protocol):
    """`layer` is a directory of the agent's own, for this allocation."""

    name: str

    def prepare(self, layer: Path, size_mib: int) -> None:
        """Makes what has to be mounted, once; after a crash it is there whole or not at all."""
        ...

    def stock(self, layers: Path, size_mib: int) -> None:
        """Makes a little of what `prepare` will need, while nobody waits for it."""
        ...

    def mount(self, layer: Path, target: Path) -> AnyOperation: ...

    def in_use(self, layer: Path) -> bool:
        """Whether something still holds the mount, in any namespace, as far as can be known."""
        ...


class ImageLimit:
    name = "image"
    _blank_lock = threading.Lock()

    def prepare(self, layer: Path, size_mib: int) -> None:
        """A spare one, which is on the disk already, or a copy of a blank one: a tenth of the time of a mkfs."""
        image = layer / "disk.ext4"
        if image.exists():
            return
        for spare in _spares(layer.parent, size_mib):
            with asking("take", spare), suppress(FileNotFoundError):  # there is none, or somebody else was faster
                os.rename(spare, image)
                _sync(layer)
                return
        blank = self._blank(layer.parent, size_mib)
        with asking("make the disk image", image), _whole(layer / "disk.ext4.new", image) as new:
            _copy_sparse(blank, new)

    def stock(self, layers: Path, size_mib: int) -> None:
        free = [spare for spare in _spares(layers, size_mib) if not spare.exists()]
        if free:
            blank = self._blank(layers, size_mib)
            with asking("make the disk image", free[0]), _whole(free[0].with_suffix(".new"), free[0]) as new:
                _copy_sparse(blank, new)

    def mount(self, layer: Path, target: Path) -> AnyOperation:
        return Image(str(layer / "disk.ext4"), str(target))

    def in_use(self, layer: Path) -> bool:
        return loops.in_use(layer / "disk.ext4")

    def _blank(self, directory: Path, size_mib: int) -> Path:
        blank = directory / f"blank-{size_mib}.ext4"
        with self._blank_lock, asking("make a disk image in", directory):
            if not blank.exists():
                with _whole(directory / f"blank-{size_mib}.ext4.new", blank) as new:
                    with new.open("wb") as file:
                        os.fchmod(file.fileno(), 0o600)
                        file.truncate(size_mib * _MIB)
                    made = _mkfs(new, size_mib)
                    if made.code != 0:
                        raise HostError("make a disk image in", str(directory), made.output.strip()[-500:])
        return blank


class NoLimit:
    name = "none"

    def prepare(self, layer: Path, size_mib: int) -> None:
        with asking("make the directory", layer / "files"):
            (layer / "files").mkdir(mode=0o700, exist_ok=True)

    def stock(self, layers: Path, size_mib: int) -> None:
        pass

    def mount(self, layer: Path, target: Path) -> AnyOperation:
        return Bind(str(layer / "files"), str(target))

    def in_use(self, layer: Path) -> bool:
        return False


LIMITS: dict[str, Limit] = {limit.name: limit for limit in (ImageLimit(), NoLimit())}


def named(name: str) -> Limit:
    if name not in LIMITS:
        raise HostError("find", f"disk limit {name}", "this agent does not know it", transient=False)
    return LIMITS[name]


def missing(name: str) -> tuple[str, str]:
    """What this machine lacks for a driver, and how to get it, in words; empty when it can be used."""
    if name == "none":
        return "", ""
    if shutil.which("mkfs.ext4", path=SEARCH_PATH) is None:
        return "mkfs.ext4 is not installed", "apt install e2fsprogs"
    if not has_filesystem("ext4"):
        return "the kernel has no ext4", "use a kernel with ext4"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "there is no /dev/loop-control that can be used", "modprobe loop, and run as root"
    return "", ""


def has_filesystem(name: str, proc: Path = Path("/proc"), modules: Path = Path("/lib/modules")) -> bool:
    """Now, or as a module, which the first mount loads: a host may have nothing on ext4 yet."""
    if f"\t{name}\n" in (proc / "filesystems").read_text():
        return True
    try:
        return f"/{name}.ko" in (modules / os.uname().release / "modules.dep").read_text()
    except OSError:
        return False


def _spares(layers: Path, size_mib: int) -> list[Path]:
    return [layers / f"{SPARE}{size_mib}-{number}.ext4" for number in range(SPARES)]


def _mkfs(image: Path, size_mib: int) -> Done:
    """With the directories of an overlay in it: the first directory of an empty file system costs milliseconds."""
    with tempfile.TemporaryDirectory() as content:
        for name, mode in (("upper", 0o755), ("work", 0o700)):
            (Path(content) / name).mkdir()
            (Path(content) / name).chmod(mode)
        options = ["-E", _MKFS_EXTENDED, "-J", f"size={max(4, min(64, size_mib // 16))}", "-d", content]
        return run([*_MKFS, *options, str(image)], _MKFS_SECONDS)


def _copy_sparse(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        size = os.fstat(old.fileno()).st_size
        os.fchmod(new.fileno(), 0o600)
        new.truncate(size)
        for start, end in _data(old.fileno(), size):
            os.lseek(new.fileno(), start, os.SEEK_SET)
            while start < end:
                start += os.sendfile(new.fileno(), old.fileno(), start, end - start)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the file is not a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data after this
                raise
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


@contextmanager
def _whole(new: Path, final: Path) -> Iterator[Path]:
    """Made under another name; a failure leaves none of it, because half an image can be the end of a full disk."""
    try:
        yield new
        _settle(new, final)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _settle(new: Path, final: Path) -> None:
    """On the disk, then under its name."""
    _sync(new)
    os.rename(new, final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
