"""Managed runtimes: the catalog, and what machines have of it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    AllocationRuntimes,
    ApplyRuntime,
    Changed,
    CollectImages,
    NewRuntimeBundle,
    RollbackRuntime,
    RuntimeBundlePage,
    RuntimeBundleView,
    RuntimeChangePage,
    RuntimeChangeView,
    RuntimeImageVerdict,
    RuntimeImageView,
    UnusedImages,
)

CHUNK = 8 << 20
EXAMINING_SECONDS = 1800.0  # an image of a project is unpacked, and written again, before it is published


class Runtimes:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, *, everything: bool = False) -> Iterator[RuntimeBundleView]:
        """What can be applied, by slug; `everything` adds what is deprecated, and for operators drafts."""
        query = {"all": True if everything else None}
        return self._api.pages(path("runtime-bundles"), RuntimeBundlePage, query)

    def show(self, name: str) -> RuntimeBundleView:
        """By id or name, like `pytorch`, `python-3.11-ml`, `python@3.11.x`."""
        return self._api.get(path("runtime-bundles", _spelled(name)), RuntimeBundleView)

    def versions(self, slug: str) -> Iterator[RuntimeBundleView]:
        """Every version of a bundle, the oldest first."""
        query = {"limit": None}
        return self._api.pages(path("runtime-bundles", slug, "versions"), RuntimeBundlePage, query)

    def describe(self, manifest: Mapping[str, Any], *, project: str | None = None) -> RuntimeBundleView:
        """A version, by the manifest that its build wrote. A draft until it is published. For operators and builders;
        with `project` for whoever works in it, and seen there only."""
        return self._api.post(_catalog(project), NewRuntimeBundle(dict(manifest)), RuntimeBundleView)

    def of_project(self, project: str) -> Iterator[RuntimeBundleView]:
        """What a project has of its own, also drafts and what is deprecated."""
        return self._api.pages(_catalog(project), RuntimeBundlePage, {"limit": None})

    def send_image(
        self, bundle: RuntimeBundleView, file: Path, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        """The image of a version, in parts, from where the server has it. Checked there in the end."""
        here, size = bundle.received_bytes, bundle.size_bytes
        whose = ("projects", bundle.project_id) if bundle.project_id else ()
        with file.open("rb") as image:
            while here < size:
                image.seek(here)
                data = image.read(min(CHUNK, size - here))
                if not data:
                    raise ValueError(f"{file} has {here} bytes, its manifest says {size}")
                said = {"Content-Range": f"bytes {here}-{here + len(data) - 1}/{size}"}
                sent = self._api.put_bytes(path(*whose, "runtime-images", bundle.digest), data, RuntimeImageView, said)
                here = sent.received_bytes
                if on_progress is not None:
                    on_progress(here, size)

    def publish(self, name: str, *, project: str | None = None) -> RuntimeBundleView:
        """From here on everybody can apply it; with `project` everybody who works there, once the server has looked
        into the image, which takes about a minute for each GiB."""
        where = _catalog(project, _spelled(name), "publish")
        return self._api.post(where, None, RuntimeBundleView, read_seconds=EXAMINING_SECONDS if project else None)

    def deprecate(self, name: str, *, project: str | None = None) -> RuntimeBundleView:
        """Nobody gets it anew; machines that have it keep it."""
        return self._api.post(_catalog(project, _spelled(name), "deprecate"), None, RuntimeBundleView)

    def delete(self, name: str, *, project: str) -> None:
        """A draft of a project, or the image of a deprecated version that no machine has."""
        self._api.delete(_catalog(project, _spelled(name)))

    def verify(self, name: str) -> RuntimeImageVerdict:
        """For operators: has the server read the image of a version. A damaged one is gone then: send it again."""
        return self._api.post(path("runtime-bundles", _spelled(name), "verify"), None, RuntimeImageVerdict)

    def unused_images(self, *, older_than_seconds: int = 86_400) -> UnusedImages:
        """For operators: what `collect_images` would remove."""
        return self._api.get(path("runtime-images", "unused"), UnusedImages, {"older_than_seconds": older_than_seconds})

    def collect_images(self, *, older_than_seconds: int = 86_400) -> UnusedImages:
        """For operators: removes images that no version needs any more, and uploads that nobody finished."""
        return self._api.post(path("runtime-images", "collect"), CollectImages(older_than_seconds), UnusedImages)

    def on(self, machine: str) -> AllocationRuntimes:
        """What a machine has, and who owns which of its paths."""
        return self._api.get(path("allocations", machine, "runtime-bundles"), AllocationRuntimes)

    def history(self, machine: str) -> Iterator[RuntimeChangeView]:
        """Everything that was ever wanted there, the newest first."""
        return self._api.pages(path("allocations", machine, "runtime-bundles", "history"), RuntimeChangePage)

    def apply(
        self,
        machine: str,
        name: str | None = None,
        *,
        id: str | None = None,
        version: str | None = None,
        replace: str | None = None,
        idempotency_key: str | None = None,
    ) -> Changed:
        """By name, by `id`, or by both if they mean the same. A bundle that the machine has changes its version;
        another one is added, or takes the place of `replace`. The machine runs on; wait for `operation`."""
        body = ApplyRuntime(id, name, version, replace)
        return self._api.post(path("allocations", machine, "runtime-bundles"), body, Changed, idempotency_key)

    def rollback(
        self, machine: str, slug: str, *, version: str | None = None, idempotency_key: str | None = None
    ) -> Changed:
        """To the version before, or to one that still lies on the machine."""
        where = path("allocations", machine, "runtime-bundles", slug, "rollback")
        return self._api.post(where, RollbackRuntime(version), Changed, idempotency_key)

    def repair(self, machine: str, slug: str, *, idempotency_key: str | None = None) -> Changed:
        """Has the node look at the image, and fetch it again if it is damaged."""
        where = path("allocations", machine, "runtime-bundles", slug, "repair")
        return self._api.post(where, None, Changed, idempotency_key)

    def remove(self, machine: str, slug: str) -> Changed:
        """Takes every version of the bundle off the machine."""
        return self._api.delete_for(path("allocations", machine, "runtime-bundles", slug), Changed)


def _catalog(project: str | None, *rest: str) -> str:
    return path(*(("projects", project) if project else ()), "runtime-bundles", *rest)


def _spelled(name: str) -> str:
    """A colon has no place in a path; `@` parts name and version just as well."""
    return name.replace(":", "@", 1)
