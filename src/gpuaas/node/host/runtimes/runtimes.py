"""The runtimes of a node's allocations: put together from the store, the mounts and the views."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import AnyOperation
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes import holders
from gpuaas.node.host.runtimes.descriptor import Descriptors
from gpuaas.node.host.runtimes.shared import Shared
from gpuaas.node.host.runtimes.store import Store
from gpuaas.node.host.runtimes.views import Views
from gpuaas.wire.node import RuntimeReport, RuntimeSpec

log = logging.getLogger(__name__)

_SCRUB_BYTES_PER_SECOND = 64 << 20  # nobody waits for it, and others need the disk


class Runtimes:
    def __init__(self, paths: Paths, namespaces: Namespaces) -> None:
        self.store = Store(paths.runtimes)
        self._place = paths.run / "images"
        self._namespaces = namespaces
        self._shared = Shared(self._place, self.store)
        self._views = Views(paths, namespaces, self.store, self._shared)
        self._descriptors = Descriptors(paths)
        self._empty: set[str] = set()  # views that this agent has seen empty: most are, and looking costs a fork

    def operations(self, id: str, uid_base: int) -> list[AnyOperation]:
        return self._views.operations(id, uid_base)

    def ensure(self, id: str, uid_base: int, wanted: Sequence[RuntimeSpec], first: int | None) -> list[RuntimeReport]:
        if not wanted and id in self._empty:
            return []
        self._empty.discard(id)
        reports = self._views.ensure(id, uid_base, wanted, first)
        if wanted:
            current = {(each.bundle, each.version) for each in reports if each.current}
            self._descriptors.write_env_file(id, [each for each in wanted if (each.bundle, each.version) in current])
        else:
            self._descriptors.remove(id)
            if not self._views.shown(id):
                self._empty.add(id)
        return reports

    def remove(self, id: str) -> None:
        self._empty.discard(id)
        self._views.remove(id)
        self._descriptors.remove(id)

    def prepare(self, id: str) -> Path:
        """The directory with the descriptor, for a machine that is about to start."""
        return self._descriptors.prepare(id)

    def close(self, id: str) -> None:
        """Nothing of it is mounted any more."""
        self._empty.discard(id)
        self._views.close(id)
        self._descriptors.close(id)

    def ids(self) -> set[str]:
        """Allocations that have runtimes."""
        return self._descriptors.ids()

    def fresh(self, id: str) -> None:
        """Its view was made just now."""
        self._empty.add(id)

    def busy(self) -> set[str]:
        """Allocations that still show what they should not, because somebody runs it."""
        return set(self._views.busy)

    def tidy(self, is_kept: Callable[[str], bool]) -> list[str]:
        """Throws away all other images, but for those that somebody has mounted. The digests of those that went."""
        held, mounted = holders.devices(self._namespaces, self._place), self._shared.mounted()
        used = {digest for digest, mount in mounted.items() if mount.device in held}
        here, removed = self.store.digests(), []
        for digest in sorted({*here, *mounted, *self.store.parts()} - used):
            if is_kept(digest):
                continue
            try:
                self._shared.drop(digest)
                self.store.remove(digest)
            except HostError as error:
                log.warning("image %s could not be thrown away: %s", digest, error)
                continue
            self._views.unread.pop(digest, None)
            if digest in here:
                removed.append(digest)
        return removed

    def unread(self) -> dict[str, bool]:
        """Images that should be read, and whether somebody waits for that."""
        return {digest: waited for digest, waited in self._views.unread.copy().items() if self.store.has(digest)}

    def check(self, digest: str, go_on: Callable[[], bool], *, gently: bool) -> bool:
        """Reads an image. One that has changed is thrown away.

        Whoever has it mounted keeps what they have until it is here again: then they get the new one on top.
        """
        if not self.store.has(digest):
            self._views.unread.pop(digest, None)
            return False  # what has arrived of the next one stays
        intact = self.store.intact(digest, go_on, _SCRUB_BYTES_PER_SECOND if gently else 0)
        if intact and not go_on():
            return True  # nothing is known, so that it should still be read
        self._views.unread.pop(digest, None)
        if intact:
            return True
        self.store.remove(digest)
        self._shared.drop(digest)
        return False

    def scrub(self, before: float, go_on: Callable[[], bool]) -> str | None:
        """Slowly, the one that was verified longest ago, if that was before this time. The digest of a damaged one."""
        oldest = self.store.oldest()
        if oldest is None or oldest[1] >= before or self.check(oldest[0], go_on, gently=True):
            return None
        return oldest[0]

    def clear(self) -> None:
        self._shared.clear()
