"""Routes: runtimes of a project's own."""

import threading
from typing import Any

import msgspec
from litestar import Response, delete, get, post

from gpuaas.control.app import project_runtimes
from gpuaas.control.http.endpoint import Req, Result, mutate, read, read_as
from gpuaas.control.http.params import Name
from gpuaas.control.http.runtime_bundles import images_of, view
from gpuaas.control.store import image_places
from gpuaas.control.store.images import Images
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.runtime import RuntimeBundle
from gpuaas.wire import api

READ, WRITE = {"action": "project_runtime.read"}, {"action": "project_runtime.write"}
ALL = "/projects/{project:str}/runtime-bundles"
ONE = ALL + "/{bundle:str}"
_looking = threading.Lock()  # one image at a time: it takes a processor, and a disk


@get(ALL, opt=READ, sync_to_thread=True, summary="Runtimes of a project's own, also what is on its way, by name")
def list_of_project(request: Req, project: Name) -> Response[api.RuntimeBundlePage]:
    def work(tx: Tx, caller: Caller) -> api.RuntimeBundlePage:
        found = project_runtimes.list_bundles(tx, caller, project)
        return api.RuntimeBundlePage([view(request, item) for item in found], None)

    return read(request, work)


@post(ALL, opt=WRITE, sync_to_thread=True,
      summary="Describe a version of a project's own by its manifest: a draft, until its image is here")  # fmt: skip
def describe_for_project(request: Req, project: Name, data: api.NewRuntimeBundle) -> Response[api.RuntimeBundleView]:
    def work(tx: Tx, caller: Caller) -> Result:
        made = project_runtimes.describe(tx, caller, project, data.manifest, images_of(request))
        return Result(view(request, made), 201)

    return mutate(request, work, data)


@post(ONE + "/publish", opt=WRITE, status_code=200, sync_to_thread=True,
      summary="Publish a version for a project; its image is looked into first, which takes a while")  # fmt: skip
def publish_for_project(request: Req, project: Name, bundle: Name) -> Response[api.RuntimeBundleView]:
    images = images_of(request)
    found, manifest = read_as(request, lambda tx, caller: project_runtimes.to_examine(tx, caller, project, bundle))
    place = image_places.of_bundle(images, found)
    examined = _examined(place, found, manifest) if found.state == "draft" and place.complete(found.digest) else None

    def work(tx: Tx, caller: Caller) -> Result:
        return Result(view(request, project_runtimes.publish(tx, caller, project, bundle, examined, place.complete)))

    return mutate(request, work)


def _examined(place: Images, bundle: RuntimeBundle, said: dict[str, Any]) -> str:
    """The digest of what was looked into, or why nobody may have it."""
    from gpuaas.runtimes.examined import examine
    from gpuaas.runtimes.manifest import decode

    if not _looking.acquire(blocking=False):
        busy = "Another image is being looked into."
        raise Problem("busy", 503, busy, "Try again in a moment.", extra={"retry_after": 10})
    try:
        manifest = decode(msgspec.json.encode(said))
        with image_places.room(place, manifest.tree_bytes + bundle.size) as work:
            examine(manifest, place.path(bundle.digest), work)
    finally:
        _looking.release()
    return bundle.digest


@post(ONE + "/deprecate", opt=WRITE, status_code=200, sync_to_thread=True,
      summary="Deprecate a version of a project's own; machines keep it")  # fmt: skip
def deprecate_for_project(request: Req, project: Name, bundle: Name) -> Response[api.RuntimeBundleView]:
    return mutate(
        request,
        lambda tx, caller: Result(view(request, project_runtimes.deprecate(tx, caller, project, bundle))),
    )


@delete(ONE, opt=WRITE, sync_to_thread=True,
        summary="Delete a draft, or the image of a deprecated version that no machine has")  # fmt: skip
def delete_of_project(request: Req, project: Name, bundle: Name) -> Response[None]:
    aside: list[tuple[Images, str]] = []

    def work(tx: Tx, caller: Caller) -> Result:
        found, place = project_runtimes.delete(tx, caller, project, bundle, images_of(request))
        if place is not None:
            aside.append((place, found.digest))
        return Result(None, 204)

    try:
        done = mutate(request, work)
    except BaseException:
        for place, digest in aside:
            place.bring_back([digest])
        raise
    for place, digest in aside:
        place.drop_aside([digest])
        place.drop_partial(digest)
    return done


ROUTES: list[Any] = [
    list_of_project,
    describe_for_project,
    publish_for_project,
    deprecate_for_project,
    delete_of_project,
]
