"""The runtimes of a node's allocations: put together from the store, the mounts and the views."""

from collections.abc import Sequence
from pathlib import Path

from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import AnyOperation
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes.descriptor import Descriptors
from gpuaas.node.host.runtimes.shared import Shared
from gpuaas.node.host.runtimes.store import Store
from gpuaas.node.host.runtimes.views import Views
from gpuaas.wire.node import RuntimeReport, RuntimeSpec


class Runtimes:
    def __init__(self, paths: Paths, namespaces: Namespaces) -> None:
        self.store = Store(paths.runtimes)
        self._shared = Shared(paths.run / "images", self.store)
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
        self._descriptors.close(id)

    def ids(self) -> set[str]:
        """Allocations that have runtimes."""
        return self._descriptors.ids()

    def fresh(self, id: str) -> None:
        """Its view was made just now."""
        self._empty.add(id)

    def clear(self) -> None:
        self._shared.clear()
