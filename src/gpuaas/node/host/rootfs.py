"""The file system of an allocation: the base image with shifted ids, read-only, under a layer of its own.

    <run>/allocations/<id>/rootfs    overlay, mounted only inside the allocation's mount namespace
    <state>/allocations/<id>.json    whose ids, over which image, limited how: claimed first, given up last
    <state>/allocations/<id>/        what it wrote

The layer belongs to its image for ever: another image below it would be another, broken, machine.
"""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import is_id
from gpuaas.node.host import limits, safepath
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE, processes
from gpuaas.node.host.mounts.mounts import Attribute
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import AnyOperation, Bind, Directory, Overlay, Unmount
from gpuaas.node.host.paths import Paths
from gpuaas.wire.node import AllocationBody

RELEASE_SECONDS = 5.0  # for the kernel to let go of a disk image after its last mount
_RECORD = ".json"
_MOUNT_POINTS = ("rootfs", "lower", "disk")


class Layer(Struct, frozen=True):
    uid_base: int
    label: str  # what the spec called the image
    image: str  # the version that this was
    limit: str
    size_mib: int


class Rootfs:
    def __init__(
        self,
        paths: Paths,
        images: Images,
        namespaces: Namespaces,
        limit: limits.Limit,
        size_mib: int = 64 * 1024,
        release_seconds: float = RELEASE_SECONDS,
    ) -> None:
        self._paths = paths
        self._images = images
        self._namespaces = namespaces
        self._limit = limit
        self._size_mib = size_mib
        self._release_seconds = release_seconds
        self._records = FileDisk(paths.layers)
        self._claiming = threading.Lock()

    def ensure(self, id: str, body: AllocationBody, more: Sequence[AnyOperation] = ()) -> bool:
        """With `more` done in its mount namespace. True: made now, for the first time, so nobody has written to it."""
        layer = self._claim(id, body)
        if self._namespaces.pinned(id):
            return False  # pinned only when it was complete, and nobody but us can change it
        directory = self._paths.layer(id)
        limit = limits.named(layer.limit)
        live = self._paths.make_live(id)
        with asking("make the directories of", id):
            fresh = not directory.exists()
            directory.mkdir(mode=0o700, exist_ok=True)
            for name in _MOUNT_POINTS:
                (live / name).mkdir(mode=0o755, exist_ok=True)
        if not fresh:
            # Two overlays on one layer destroy it.
            _idle(id, layer)
            self._released(id, limit)
        limit.prepare(directory, layer.size_mib)
        self._namespaces.create(id, [*self._operations(live, layer, limit.mount(directory, live / "disk")), *more])
        return fresh

    def rest(self) -> None:
        """Nobody waits for anything: makes ready what the next one will need."""
        if self._paths.layers.is_dir():
            self._limit.stock(self._paths.layers, self._size_mib)

    def remove(self, id: str) -> None:
        try:
            layer = self.layer(id)
        except HostError:
            layer = None  # damaged: then there is nothing to learn from it
        self._unmount(id, layer)
        safepath.remove_tree(self._paths.layers, self._paths.layer(id).name)
        self._records.remove(id + _RECORD)

    def close(self, id: str) -> None:
        """No mount is left; what the tenant wrote stays, for the next `ensure`."""
        self._unmount(id, self.layer(id))

    def _unmount(self, id: str, layer: Layer | None) -> None:
        if layer is not None:
            _idle(id, layer)
        self._namespaces.remove(id)
        for limit in limits.LIMITS.values():
            self._released(id, limit)
        self._remove_mount_points(id)

    def ids(self) -> set[str]:
        """Every allocation of which there is any part."""
        names = {name.removesuffix(_RECORD) for name in self._records.names()} | set(self._namespaces.ids())
        return {name for name in names if is_id(name, name[:2])}

    def layer(self, id: str) -> Layer | None:
        data = self._records.read(id + _RECORD)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Layer)
        except msgspec.MsgspecError as error:
            raise HostError("read the record of", id, f"it is damaged: {error}", transient=False) from error

    def path(self, id: str) -> Path:
        """Where it is mounted, for whoever is inside the mount namespace."""
        return self._paths.live(id) / "rootfs"

    def used_bytes(self, id: str) -> int | None:
        """What its disk takes of the host's; None where nothing limits it, because counting would take long."""
        try:
            return sum(each.stat().st_blocks * 512 for each in os.scandir(self._paths.layer(id)) if each.is_file())
        except FileNotFoundError:
            return None

    def check(
        self,
        id: str,
        operations: Sequence[AnyOperation] = (),
        directories: Sequence[str] = (),
        files: Sequence[str] = (),
    ) -> bool:
        """Refuses a tree on which nothing may be started, because of what the tenant made of it.

        `operations` are performed first, in the same visit to its mount namespace: each one costs a fork. Answers
        whether something can be mounted on all of these: what they are called, or missing, and no links.
        """
        fd = self._namespaces.open(id, self.path(id), operations)
        try:
            safepath.real_directories(fd)
            return all(safepath.can_be_made(fd, each.lstrip("/")) for each in directories) and all(
                safepath.can_be_file(fd, each.lstrip("/")) for each in files
            )
        finally:
            os.close(fd)

    def _claim(self, id: str, body: AllocationBody) -> Layer:
        """Takes the id range, once. Only one agent uses these records, so a lock in this process is enough."""
        with self._claiming:
            holder = self._holder(id, body.uid_base)
            if holder is not None:
                raise HostError("rootfs_ensure", id, f"the ids from {body.uid_base} belong to {holder}")
            layer = self.layer(id)
            if layer is None:
                version = self._images.resolve(body.image)
                layer = Layer(body.uid_base, body.image, version, self._limit.name, self._size_mib)
                self._records.write(id + _RECORD, msgspec.json.encode(layer))
        if (layer.uid_base, layer.label) != (body.uid_base, body.image):
            cause = f"its layer was made for ids from {layer.uid_base} over the image {layer.label}"
            raise HostError("rootfs_ensure", id, cause, transient=False)
        return layer

    def _holder(self, id: str, uid_base: int) -> str | None:
        for other in self.ids() - {id}:
            with suppress(HostError):  # one damaged record must not stop all others; the server keeps ranges apart too
                layer = self.layer(other)
                if layer is not None and abs(layer.uid_base - uid_base) < IDS_PER_RANGE:
                    return other
        return None

    def _operations(self, live: Path, layer: Layer, disk: AnyOperation) -> list[AnyOperation]:
        lower = Attribute.READ_ONLY | Attribute.NOSUID | Attribute.NODEV
        return [
            Bind(str(self._images.tree(layer.image)), str(live / "lower"), lower, uid_base=layer.uid_base),
            disk,
            Directory(str(live / "disk/upper"), owner=layer.uid_base),
            Directory(str(live / "disk/work"), mode=0o700),
            Overlay(str(live), "lower", "disk/upper", "disk/work", str(live / "rootfs")),
            # The overlay holds its layers by itself; the fewer mounts are left, the faster a container starts.
            Unmount(str(live / "disk")),
            Unmount(str(live / "lower")),
        ]

    def _released(self, id: str, limit: limits.Limit) -> None:
        """The kernel may take a moment to let go of a disk after its last mount."""
        deadline = time.monotonic() + self._release_seconds
        while limit.in_use(self._paths.layer(id)):
            if time.monotonic() > deadline:
                raise HostError("rootfs", id, "its disk is still mounted in another mount namespace")
            time.sleep(0.01)

    def _remove_mount_points(self, id: str) -> None:
        live = self._paths.live(id)
        with asking("remove", live):
            for name in _MOUNT_POINTS:
                with suppress(FileNotFoundError):
                    (live / name).rmdir()
        with suppress(OSError):  # other parts of the machine keep things there too
            live.rmdir()


def _idle(id: str, layer: Layer) -> None:
    running = processes(layer.uid_base)
    if running:
        raise HostError("rootfs", id, f"its container is running (process {', '.join(map(str, running[:5]))})")
