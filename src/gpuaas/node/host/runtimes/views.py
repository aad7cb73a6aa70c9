"""What an allocation sees below /opt/gpuaas/runtimes, changed while its machine runs.

    <run>/allocations/<id>/runtimes/<bundle>/<version>    a copy of the image's mount, in the allocation's own ids
    <run>/allocations/<id>/runtimes/<bundle>/current      a link to one of them, switched by renaming

It is a small file system in the allocation's mount namespace, shared, and mounted read-only in its container: what is
mounted here arrives there. Nothing is remembered: what a view shows is read from it. A version is complete before a
link names it, and loses its link before it goes, so `current` never dangles (I11).
"""

import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.interface import READING
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.erofs import READ_ONLY
from gpuaas.node.host.mounts.helper import Ended
from gpuaas.node.host.mounts.mounts import Attribute, Propagation
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import (
    AnyOperation,
    Directory,
    FileSystem,
    Place,
    Propagate,
    Remove,
    Unmount,
)
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes.shared import Shared
from gpuaas.node.host.runtimes.store import Store
from gpuaas.wire.node import RuntimeReport, RuntimeSpec

INSIDE = "/opt/gpuaas/runtimes"
DIRECTORY = "runtimes"
CURRENT = "current"
NO_PLACE = (
    "The machine has no place for runtimes: an older agent started it, or /opt/gpuaas in it is not a real directory."
    " Restart it first."
)

_READ_SECONDS = 600.0  # an image that was read so lately is not read again for somebody who gets it now

Key = tuple[str, str]  # bundle, version


@dataclass(frozen=True)
class Handle:
    fd: int  # the view's directory
    device: int  # of the view itself
    namespace: int
    group: str  # what is mounted here arrives where this group is the master


@dataclass
class Seen:
    handle: Handle
    devices: dict[Key, str] = field(default_factory=dict)  # of what is mounted there, and seen; empty: nothing is
    current: dict[str, str] = field(default_factory=dict)  # bundle: version


class Views:
    def __init__(self, paths: Paths, namespaces: Namespaces, store: Store, shared: Shared) -> None:
        self._paths = paths
        self._namespaces = namespaces
        self._store = store
        self._shared = shared
        self.busy: set[str] = set()  # allocations that show what they should not: somebody runs it
        self.unread: dict[str, bool] = {}  # images that should be read, and whether somebody waits for that
        self._unusable: set[str] = set()  # images that could not be mounted the last time
        self._handles: dict[str, Handle] = {}
        self._opening = threading.Lock()

    def place(self, id: str) -> Path:
        return self._paths.live(id) / DIRECTORY

    def operations(self, id: str, uid_base: int) -> list[AnyOperation]:
        """Makes an empty view in the allocation's mount namespace, or leaves the one that is there."""
        target = str(self.place(id))
        options: dict[str, str | None] = {"source": "runtimes", "mode": "0755", "size": "1m", "nr_inodes": "4096"}
        options |= {"uid": str(uid_base), "gid": str(uid_base)}
        return [
            Directory(target),
            FileSystem("tmpfs", target, options, Attribute.NOSUID | Attribute.NODEV),
            Propagate(target, Propagation.SHARED),
        ]

    def ensure(
        self, id: str, uid_base: int, wanted: Sequence[RuntimeSpec], first: int | None = None
    ) -> list[RuntimeReport]:
        """Shows exactly these, as far as their images are here. `first` is a process of its container, if it runs."""
        seen = self._seen(id)
        if seen is None or (first is not None and not _arrives(first, seen.handle.group)):
            return [_failed(spec, "no_place", NO_PLACE) for spec in wanted]
        reports = [self._show(id, uid_base, spec, seen) for spec in wanted]
        ready = {(each.bundle, each.version) for each in reports if each.state == "ready"}
        current = self._switch(uid_base, wanted, ready, seen)
        unwanted = set(seen.devices) - {(spec.bundle, spec.version) for spec in wanted}
        hidden = [self._hide(id, key) for key in unwanted]
        (self.busy.discard if all(hidden) else self.busy.add)(id)
        marked = [(each, current.get(each.bundle) == each.version) for each in reports]
        return [RuntimeReport(r.bundle, r.version, r.state, now, r.percent, r.code, r.message) for r, now in marked]

    def remove(self, id: str) -> None:
        """Nothing is shown any more, whoever uses it."""
        self.busy.discard(id)
        seen = self._seen(id) if self._namespaces.pinned(id) else None
        if seen is not None:
            for bundle in seen.current:
                _unlink(seen.handle, bundle)
            for key in seen.devices:
                self._hide(id, key, lazy=True)

    def close(self, id: str) -> None:
        """Its view is not needed any more here."""
        with self._opening:
            handle = self._handles.pop(id, None)
        if handle is not None:
            os.close(handle.fd)

    def shown(self, id: str) -> set[Key]:
        seen = self._seen(id) if self._namespaces.pinned(id) else None
        return set(seen.devices) if seen is not None else set()

    def _show(self, id: str, uid_base: int, spec: RuntimeSpec, seen: Seen) -> RuntimeReport:
        key, percent = (spec.bundle, spec.version), None
        if self._store.changed(spec.digest):
            self.unread[spec.digest] = True
            return RuntimeReport(*key, "fetching", code="reading", message=READING)
        image = self._shared.device(spec.digest)
        if image is not None and seen.devices.get(key) == image:
            return RuntimeReport(*key, "ready")
        if not self._store.has(spec.digest):
            if arrived := self._store.arrived(spec.digest):
                percent = min(99, arrived * 100 // max(1, spec.size))
            return RuntimeReport(*key, "fetching", percent=percent)
        try:
            self._shared.ensure(spec.digest)
        except HostError as error:
            if spec.digest not in self._unusable or self._was_long_unread(spec.digest):  # it is tried again and again
                self.unread.setdefault(spec.digest, False)  # perhaps it is damaged where the kernel looks
            self._unusable.add(spec.digest)
            return _failed(spec, "image_unusable", f"Its image cannot be mounted on this node: {error.cause}.")
        self._unusable.discard(spec.digest)
        try:
            self._place(id, uid_base, spec, seen.handle)
        except HostError as error:
            return _failed(spec, "mount_failed", f"It could not be shown to the machine: {error.cause}.")
        seen.devices[key] = "new"
        if self._was_long_unread(spec.digest):
            self.unread.setdefault(spec.digest, False)
        return RuntimeReport(*key, "ready")

    def _was_long_unread(self, digest: str) -> bool:
        return time.time() - self._store.read_at(digest) > _READ_SECONDS

    def _place(self, id: str, uid_base: int, spec: RuntimeSpec, view: Handle) -> None:
        """On top of another build of this version: whoever runs from that one keeps it."""
        bundle, version = self.place(id) / spec.bundle, self.place(id) / spec.bundle / spec.version
        changes: list[AnyOperation] = [Directory(str(each), owner=uid_base) for each in (bundle, version)]
        changes.append(Place(str(version), READ_ONLY, uid_base))
        try:
            self._change_with_copy(id, changes, spec.digest)
        except Ended:
            # Placing is not as good twice: first whether it was done.
            if _device(view, spec.bundle, spec.version) != self._shared.device(spec.digest):
                self._change_with_copy(id, changes, spec.digest)

    def _change_with_copy(self, id: str, changes: Sequence[AnyOperation], digest: str) -> None:
        copy = self._shared.copy(digest)
        try:
            self._namespaces.change_quickly(id, changes, copy)
        finally:
            os.close(copy)

    def _switch(self, uid_base: int, wanted: Iterable[RuntimeSpec], ready: set[Key], seen: Seen) -> dict[str, str]:
        """Moves every link that is not as it should be. What each bundle's link says in the end."""
        asked = {spec.bundle: spec.version for spec in wanted if spec.current}
        listed = {(spec.bundle, spec.version) for spec in wanted}
        current: dict[str, str] = {}
        for bundle in sorted({*asked, *seen.current}):
            before = seen.current.get(bundle)
            if (bundle, asked.get(bundle, "")) in ready:
                current[bundle] = asked[bundle]
                if before != asked[bundle]:
                    _link(seen.handle, bundle, asked[bundle], uid_base)
            elif bundle in asked and before is not None and {(bundle, before)} <= listed & set(seen.devices):
                current[bundle] = before  # until the next one is ready, or for good if it failed
            elif before is not None:
                _unlink(seen.handle, bundle)
        return current

    def _hide(self, id: str, key: Key, *, lazy: bool = False) -> bool:
        """A version that somebody runs stays until they have ended: they may still load parts of it."""
        target = self.place(id) / key[0] / key[1]
        gone = Unmount(str(target), lazy, all_=True), Remove(str(target)), Remove(str(target.parent), if_empty=True)
        try:
            try:
                self._namespaces.change_quickly(id, gone)
            except Ended:  # all of this is as good twice
                self._namespaces.change_quickly(id, gone)
        except HostError:
            return False
        return True

    def _seen(self, id: str) -> Seen | None:
        """None: it has no view. Read through a handle: entering its mount namespace takes a fork."""
        handle = self._handle(id)
        if handle is None:
            return None
        seen = Seen(handle)
        with asking("look at", self.place(id)):
            for bundle in _directories(handle.fd, "."):
                for version in _directories(handle.fd, bundle):
                    seen.devices[bundle, version] = _device(handle, bundle, version)
                with suppress(FileNotFoundError):
                    seen.current[bundle] = os.readlink(f"{bundle}/{CURRENT}", dir_fd=handle.fd)
        return seen

    def _handle(self, id: str) -> Handle | None:
        """On its view, as it is in the mount namespace that is pinned now; kept as long as that one is."""
        with asking("look at", self._paths.pin(id)):
            namespace = os.stat(self._paths.pin(id)).st_ino
        with self._opening:
            known = self._handles.get(id)
            if known is not None and known.namespace == namespace:
                return known
        self.close(id)
        table, live = self._namespaces.look(id, self._paths.live(id))
        try:
            view = mounts.at(self.place(id), table)
            group = next((each for each in view.propagation if each.startswith("shared:")), "") if view else ""
            if not group:
                return None
            with asking("open", self.place(id)):
                fd = os.open(DIRECTORY, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=live)
        finally:
            os.close(live)
        with self._opening:
            self._handles[id] = Handle(fd, os.fstat(fd).st_dev, namespace, group)
            return self._handles[id]


def _directories(root: int, path: str) -> list[str]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        with os.scandir(fd) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    finally:
        os.close(fd)


def _device(view: Handle, bundle: str, version: str) -> str:
    """Of what is mounted there; empty: nothing is."""
    try:
        device = os.stat(f"{bundle}/{version}", dir_fd=view.fd, follow_symlinks=False).st_dev
    except FileNotFoundError:
        return ""
    return "" if device == view.device else _name(device)


def _link(handle: Handle, bundle: str, version: str, owner: int) -> None:
    """Switched at once: whoever looks sees the one before or this one."""
    with asking("switch", f"{bundle} to {version}"):
        aside, link = f"{bundle}/.{CURRENT}", f"{bundle}/{CURRENT}"
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=handle.fd)
        os.symlink(version, aside, dir_fd=handle.fd)
        os.chown(aside, owner, owner, dir_fd=handle.fd, follow_symlinks=False)
        os.rename(aside, link, src_dir_fd=handle.fd, dst_dir_fd=handle.fd)


def _unlink(handle: Handle, bundle: str) -> None:
    with asking("remove the link of", bundle), suppress(FileNotFoundError):
        os.unlink(f"{bundle}/{CURRENT}", dir_fd=handle.fd)


def _name(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _arrives(pid: int, group: str) -> bool:
    master = group.replace("shared:", "master:")
    with asking("read the mounts of", f"process {pid}"):
        return f" {master} " in Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")


def _failed(spec: RuntimeSpec, code: str, message: str) -> RuntimeReport:
    return RuntimeReport(spec.bundle, spec.version, "failed", code=code, message=message)
