"""Routes: the catalog of runtimes."""

from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import runtime_bundles
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Req, Result, mutate, read, read_as
from gpuaas.control.http.params import Cursor, IncludeEnded, Limit, Name
from gpuaas.control.store import image_places
from gpuaas.control.store.images import Images
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import RUNTIME_BUNDLE
from gpuaas.model.runtime import RuntimeBundle
from gpuaas.wire import api


def images_of(request: Req) -> Images:
    images: Images = request.app.state.images
    return images


@get("/runtime-bundles", opt={"action": "runtime_bundle.read"}, sync_to_thread=True,
     summary="Runtimes that can be applied, by slug; with `all` also what could be once")  # fmt: skip
def list_bundles(
    request: Req, everything: IncludeEnded = False, limit: Limit = 100, cursor: Cursor = None
) -> Response[api.RuntimeBundlePage]:
    after = pages.pair(cursor)

    def work(tx: Tx, caller: Caller) -> api.RuntimeBundlePage:
        found = runtime_bundles.list_bundles(tx, caller, everything, after, limit + 1)
        items, more = pages.cut(found, limit)
        cursor = pages.encode(items[-1].slug, items[-1].id) if more else None
        return api.RuntimeBundlePage([view(request, item) for item in items], cursor)

    return read(request, work)


@get("/runtime-bundles/{bundle:str}", opt={"action": "runtime_bundle.read"}, sync_to_thread=True,
     summary="One version, by id or name, with its manifest")  # fmt: skip
def show(request: Req, bundle: Name) -> Response[api.RuntimeBundleView]:
    def work(tx: Tx, caller: Caller) -> api.RuntimeBundleView:
        found = runtime_bundles.show(tx, caller, bundle)
        return view(request, found, runtime_bundles.manifest(tx, found))

    return read(request, work)


@get("/runtime-bundles/{bundle:str}/versions", opt={"action": "runtime_bundle.read"}, sync_to_thread=True,
     summary="Every version of a bundle, the oldest first")  # fmt: skip
def versions(request: Req, bundle: Name) -> Response[api.RuntimeBundlePage]:
    def work(tx: Tx, caller: Caller) -> api.RuntimeBundlePage:
        found = runtime_bundles.versions(tx, caller, bundle)
        return api.RuntimeBundlePage([view(request, item) for item in found], None)

    return read(request, work)


@post("/runtime-bundles", opt={"action": "runtime_bundle.write"}, sync_to_thread=True,
      summary="Describe a version by its manifest (operators, builders): a draft, until its image is here")  # fmt: skip
def describe(request: Req, data: api.NewRuntimeBundle) -> Response[api.RuntimeBundleView]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(view(request, runtime_bundles.describe(tx, caller, data.manifest)), 201)

    return mutate(request, work, data)


@post("/runtime-bundles/{bundle:str}/publish", opt={"action": "runtime_bundle.write"}, status_code=200,
      sync_to_thread=True, summary="Publish a version whose image is here (operators, builders)")  # fmt: skip
def publish(request: Req, bundle: Name) -> Response[api.RuntimeBundleView]:
    is_here = images_of(request).complete
    return mutate(
        request, lambda tx, caller: Result(view(request, runtime_bundles.publish(tx, caller, bundle, is_here)))
    )


@post("/runtime-bundles/{bundle:str}/deprecate", opt={"action": "runtime_bundle.write"}, status_code=200,
      sync_to_thread=True, summary="Deprecate a version (operators, builders); machines keep it")  # fmt: skip
def deprecate(request: Req, bundle: Name) -> Response[api.RuntimeBundleView]:
    return mutate(request, lambda tx, caller: Result(view(request, runtime_bundles.deprecate(tx, caller, bundle))))


@post("/runtime-bundles/{bundle:str}/verify", opt={"action": "runtime_bundle.write"}, status_code=200,
      sync_to_thread=True,
      summary="Read a version's image on this server (operators, builders); a damaged one is gone then")  # fmt: skip
def verify(request: Req, bundle: Name) -> Response[api.RuntimeImageVerdict]:
    asked = read_as(request, lambda tx, caller: runtime_bundles.to_verify(tx, caller, bundle))
    found = images_of(request).verify(asked.digest)  # in no transaction: it takes seconds

    def work(tx: Tx, caller: Caller) -> Result:
        item = runtime_bundles.verified(tx, caller, asked.id, found)
        return Result(api.RuntimeImageVerdict(item.id, item.name, asked.digest, asked.size, found))

    return mutate(request, work)


def view(request: Req, item: RuntimeBundle, manifest: dict[str, Any] | None = None) -> api.RuntimeBundleView:
    place = image_places.of_bundle(images_of(request), item)
    here = place.received(item.digest, item.size)  # also of what is published: a disk can be lost
    return api.RuntimeBundleView(
        item.id,
        item.slug,
        item.version,
        item.name,
        item.product,
        item.description,
        item.family,
        item.support,
        item.is_default,
        "platform" if item.project_id is None else "project",
        item.project_id,
        item.architecture,
        item.digest,
        item.size,
        here,
        api.RuntimeRequirements(**item.requirements),
        item.root,
        item.state,
        list(RUNTIME_BUNDLE.allowed(item.state)),
        item.created_at,
        item.published_at,
        item.deprecated_at,
        manifest,
    )


ROUTES: list[Any] = [list_bundles, show, versions, describe, publish, deprecate, verify]
