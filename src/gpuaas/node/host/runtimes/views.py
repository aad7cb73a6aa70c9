"""What an allocation sees below /opt/gpuaas/runtimes, changed while its machine runs.

    <run>/allocations/<id>/runtimes/<bundle>/<version>    a copy of the image's mount, in the allocation's own ids
    <run>/allocations/<id>/runtimes/<bundle>/current      a link to one of them, switched by renaming

It is a small file system in the allocation's mount namespace, shared, and mounted read-only in its container: what is
mounted here arrives there. Nothing is remembered: what a view shows is read from it. A version is complete before a
link names it, and loses its link before it goes, so `current` never dangles (I11).
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute, Propagation
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import (
    AnyOperation,
    Directory,
    FileSystem,
    Link,
    Place,
    Propagate,
    Remove,
    Unmount,
)
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes.shared import READ_ONLY, Shared
from gpuaas.node.host.runtimes.store import Store
from gpuaas.wire.node import RuntimeReport, RuntimeSpec

INSIDE = "/opt/gpuaas/runtimes"
DIRECTORY = "runtimes"
CURRENT = "current"
NO_PLACE = (
    "The machine has no place for runtimes: an older agent started it, or /opt/gpuaas in it is not a real directory."
    " Restart it first."
)

Key = tuple[str, str]  # bundle, version


@dataclass
class Seen:
    group: str  # what is mounted here arrives where this group is the master
    devices: dict[Key, list[str]] = field(default_factory=dict)  # of what is mounted there, the visible one last
    current: dict[str, str] = field(default_factory=dict)  # bundle: version


class Views:
    def __init__(self, paths: Paths, namespaces: Namespaces, store: Store, shared: Shared) -> None:
        self._paths = paths
        self._namespaces = namespaces
        self._store = store
        self._shared = shared
        self.busy: set[str] = set()  # allocations that show what they should not: somebody runs it

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
        if seen is None or (first is not None and not _arrives(first, seen.group)):
            return [_failed(spec, "no_place", NO_PLACE) for spec in wanted]
        reports = [self._show(id, uid_base, spec, seen) for spec in wanted]
        ready = {(each.bundle, each.version) for each in reports if each.state == "ready"}
        current = self._switch(id, uid_base, wanted, ready, seen)
        unwanted = set(seen.devices) - {(spec.bundle, spec.version) for spec in wanted}
        hidden = [self._hide(id, key, len(seen.devices[key])) for key in unwanted]
        (self.busy.discard if all(hidden) else self.busy.add)(id)
        marked = [(each, current.get(each.bundle) == each.version) for each in reports]
        return [RuntimeReport(r.bundle, r.version, r.state, now, r.percent, r.code, r.message) for r, now in marked]

    def remove(self, id: str) -> None:
        """Nothing is shown any more, whoever uses it."""
        self.busy.discard(id)
        seen = self._seen(id) if self._namespaces.pinned(id) else None
        if seen is not None:
            self._namespaces.change(id, [Remove(f"{self.place(id)}/{each}/{CURRENT}") for each in seen.current])
            for key, devices in seen.devices.items():
                self._hide(id, key, len(devices), lazy=True)

    def shown(self, id: str) -> set[Key]:
        seen = self._seen(id) if self._namespaces.pinned(id) else None
        return set(seen.devices) if seen is not None else set()

    def _show(self, id: str, uid_base: int, spec: RuntimeSpec, seen: Seen) -> RuntimeReport:
        key, percent = (spec.bundle, spec.version), None
        there = seen.devices.get(key, [])
        image = self._shared.mounted().get(spec.digest)
        if image is not None and there[-1:] == [image.device]:
            return RuntimeReport(*key, "ready")
        if not self._store.has(spec.digest):
            if arrived := self._store.arrived(spec.digest):
                percent = min(99, arrived * 100 // max(1, spec.size))
            return RuntimeReport(*key, "fetching", percent=percent)
        try:
            handle = self._shared.copy(spec.digest)
        except HostError as error:
            return _failed(spec, "image_unusable", f"Its image cannot be mounted on this node: {error.cause}.")
        bundle, version = self.place(id) / spec.bundle, self.place(id) / spec.bundle / spec.version
        try:
            # On top of another build of this version: whoever runs from that one keeps it.
            changes: list[AnyOperation] = [Directory(str(each), owner=uid_base) for each in (bundle, version)]
            changes.append(Place(str(version), READ_ONLY, uid_base))
            if spec.current:  # in the same visit: each one costs a fork
                changes.append(Link(f"{bundle}/{CURRENT}", spec.version, uid_base))
            self._namespaces.change(id, changes, handle)
        except HostError as error:
            return _failed(spec, "mount_failed", f"It could not be shown to the machine: {error.cause}.")
        finally:
            os.close(handle)
        seen.devices[key] = [*there, "new"]
        if spec.current:
            seen.current[spec.bundle] = spec.version
        return RuntimeReport(*key, "ready")

    def _switch(
        self, id: str, uid_base: int, wanted: Iterable[RuntimeSpec], ready: set[Key], seen: Seen
    ) -> dict[str, str]:
        """Moves every link that is not as it should be. What each bundle's link says in the end."""
        asked = {spec.bundle: spec.version for spec in wanted if spec.current}
        listed = {(spec.bundle, spec.version) for spec in wanted}
        current: dict[str, str] = {}
        changes: list[AnyOperation] = []
        for bundle in sorted({*asked, *seen.current}):
            before, link = seen.current.get(bundle), f"{self.place(id)}/{bundle}/{CURRENT}"
            if (bundle, asked.get(bundle, "")) in ready:
                current[bundle] = asked[bundle]
                if before != asked[bundle]:
                    changes.append(Link(link, asked[bundle], uid_base))
            elif bundle in asked and before is not None and {(bundle, before)} <= listed & set(seen.devices):
                current[bundle] = before  # until the next one is ready, or for good if it failed
            elif before is not None:
                changes.append(Remove(link))
        if changes:
            self._namespaces.change(id, changes)
        return current

    def _hide(self, id: str, key: Key, times: int, *, lazy: bool = False) -> bool:
        """A version that somebody runs stays until they have ended: they may still load parts of it."""
        target = self.place(id) / key[0] / key[1]
        try:
            self._namespaces.change(id, [*times * [Unmount(str(target), lazy)], Remove(str(target))])
        except HostError:
            return False
        with suppress(HostError):  # it has other versions
            self._namespaces.change(id, [Remove(str(target.parent))])
        return True

    def _seen(self, id: str) -> Seen | None:
        """None: it has no view."""
        place = self.place(id)
        table, live = self._namespaces.look(id, self._paths.live(id))
        try:
            view = mounts.at(place, table)
            group = next((each for each in view.propagation if each.startswith("shared:")), "") if view else ""
            if not group:
                return None
            seen = Seen(group)
            with asking("look at", place):
                for bundle in _directories(live, DIRECTORY):
                    for version in _directories(live, f"{DIRECTORY}/{bundle}"):
                        target = str(place / bundle / version)
                        seen.devices[bundle, version] = [each.device for each in table if each.target == target]
                    with suppress(FileNotFoundError):
                        seen.current[bundle] = os.readlink(f"{DIRECTORY}/{bundle}/{CURRENT}", dir_fd=live)
            return seen
        finally:
            os.close(live)


def _directories(root: int, path: str) -> list[str]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        with os.scandir(fd) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    finally:
        os.close(fd)


def _arrives(pid: int, group: str) -> bool:
    master = group.replace("shared:", "master:")
    return any(master in each.propagation for each in mounts.mounts(pid))


def _failed(spec: RuntimeSpec, code: str, message: str) -> RuntimeReport:
    return RuntimeReport(spec.bundle, spec.version, "failed", code=code, message=message)
