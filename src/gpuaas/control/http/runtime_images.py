"""Routes: the images of runtimes. Operators send them, nodes fetch them; both can go on where they were cut off."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post, put
from litestar.params import Parameter
from litestar.response import Stream

from gpuaas.control.app import project_runtimes, runtime_bundles, runtime_images
from gpuaas.control.http.endpoint import Req, Result, correlation_of, mutate, read, read_as, store_of
from gpuaas.control.http.params import Name
from gpuaas.control.http.runtime_bundles import images_of
from gpuaas.control.store import image_places
from gpuaas.control.store.images import Arrival, Images
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, invalid
from gpuaas.model.identity import Caller
from gpuaas.model.runtime import MOST_BYTES_OF_ITS_IMAGE, RuntimeBundle
from gpuaas.wire import api

CHUNK = 1 << 20
MOST_STREAMS = 32  # of one replica at a time: a fleet that restarts must not starve everybody else
_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{1,15})?")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")

Digest = Annotated[
    str, Parameter(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}" + api.END, description="The sha256.")
]

OlderThan = Annotated[int, Parameter(ge=3600, le=10 * 366 * 86_400, description="Nobody has touched it for so long.")]


class _Sent(msgspec.Struct, frozen=True):
    """What makes two requests with one Idempotency-Key the same."""

    first: int
    sha256: str


@put("/runtime-images/{digest:str}", opt={"action": "runtime_bundle.write", "binary": True},
     request_max_body_size=runtime_bundles.MOST_BYTES,
     summary="Send an image, or with Content-Range the rest of it (operators, builders)")  # fmt: skip
async def send(request: Req, digest: Digest) -> Response[api.RuntimeImageView]:
    size = await asyncio.to_thread(
        read_as, request, lambda tx, caller: runtime_bundles.expected_image(tx, caller, digest)
    )
    return await received(request, images_of(request), digest, size, runtime_bundles.image_sent)


@put("/projects/{project:str}/runtime-images/{digest:str}", opt={"action": "project_runtime.write", "binary": True},
     request_max_body_size=MOST_BYTES_OF_ITS_IMAGE,
     summary="Send the image of a runtime of a project, or with Content-Range the rest of it")  # fmt: skip
async def send_of_project(request: Req, project: Name, digest: Digest) -> Response[api.RuntimeImageView]:
    project_id, size = await asyncio.to_thread(
        read_as, request, lambda tx, caller: project_runtimes.expected_image(tx, caller, project, digest)
    )

    def sent(tx: Tx, caller: Caller, digest: str, here: int) -> None:
        project_runtimes.image_sent(tx, caller, project_id, digest, here)

    return await received(request, image_places.of_project(images_of(request), project_id), digest, size, sent)


async def received(
    request: Req, images: Images, digest: str, size: int, sent: Callable[[Tx, Caller, str, int], None]
) -> Response[api.RuntimeImageView]:
    first = _first(request.headers.get("content-range"), size)
    with images.arriving(digest, size, first) as arrival:
        await _take(request, arrival)
        here = await asyncio.to_thread(arrival.close)

    def work(tx: Tx, caller: Caller) -> Result:
        sent(tx, caller, digest, here)
        return Result(api.RuntimeImageView(digest, size, here, here == size))

    return await asyncio.to_thread(mutate, request, work, _Sent(first, arrival.sent.hexdigest()))


async def _take(request: Req, arrival: Arrival) -> None:
    """To the disk in large pieces: a thread for each of the network's small ones would cost more than writing."""
    waiting, length = [], 0
    async for data in request.stream():
        waiting.append(data)
        length += len(data)
        if length >= CHUNK or (not data and length):
            await asyncio.to_thread(arrival.write, b"".join(waiting))
            waiting, length = [], 0


def _first(header: str | None, size: int) -> int:
    if header is None:
        return 0
    match = _CONTENT_RANGE.fullmatch(header)
    if match is None or int(match[3]) != size or not int(match[1]) <= int(match[2]) < size:
        raise invalid(f"Content-Range must be like `bytes 0-{size - 1}/{size}`.", "The image has that many bytes.")
    return int(match[1])


@get("/runtime-images/{digest:str}", opt={"action": "runtime_image.fetch"}, media_type="application/octet-stream",
     summary="Fetch an image, or with Range a part of it (nodes, which sign the request)")  # fmt: skip
async def fetch(request: Req, digest: Digest) -> Stream:
    def work(tx: Tx) -> list[RuntimeBundle]:
        headers = request.headers
        return runtime_bundles.fetch_image(
            tx, lambda name: headers.get(name, ""), request.method, request.url.path, digest
        )

    known = await asyncio.to_thread(store_of(request).look, work, correlation_id=correlation_of(request))
    images = images_of(request)
    places = [image_places.of_bundle(images, bundle) for bundle in known]
    file = next((place.path(digest) for place in places if place.complete(digest)), None)
    if file is None:
        raise _elsewhere()
    if images.streams >= MOST_STREAMS:
        said = "Too many images are being fetched from this server."
        raise Problem("busy", 503, said, "Try again in a moment.", extra={"retry_after": 2})
    size = file.stat().st_size
    first, last = _part(request.headers.get("range"), size)
    whole = (first, last) == (0, size - 1) and "range" not in request.headers
    headers = {"Content-Length": str(last - first + 1), "Accept-Ranges": "bytes", "ETag": f'"{digest}"'}
    if not whole:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Stream(
        _bytes(images, file, first, last),
        status_code=200 if whole else 206,
        headers=headers,
        media_type="application/octet-stream",
    )


@get("/runtime-images/unused", opt={"action": "runtime_image.read"}, sync_to_thread=True,
     summary="Images and halves of images on this server that nobody needs any more (operators)")  # fmt: skip
def unused(request: Req, older_than_seconds: OlderThan = 86_400) -> Response[api.UnusedImages]:
    images = images_of(request)
    return read(request, lambda tx, caller: _unused(runtime_images.unused(tx, caller, images, older_than_seconds)))


@post("/runtime-images/collect", opt={"action": "runtime_image.collect"}, status_code=200, sync_to_thread=True,
      summary="Remove images that nobody needs any more (operators), and say which they were")  # fmt: skip
def collect(request: Req, data: api.CollectImages) -> Response[api.UnusedImages]:
    images, aside = images_of(request), runtime_images.Aside()

    def work(tx: Tx, caller: Caller) -> Result:
        return Result(_unused(runtime_images.collect(tx, caller, images, data.older_than_seconds, aside)))

    try:
        done = mutate(request, work, data)
    except BaseException:
        aside.bring_back()
        raise
    aside.drop()
    return done


def _unused(found: list[runtime_images.Unused]) -> api.UnusedImages:
    items = [api.UnusedImage(each.digest, each.size, each.kind, each.name) for each in found]
    return api.UnusedImages(items, None, sum(each.size for each in found))


def _elsewhere() -> Problem:
    return Problem(
        "image_not_here",
        503,
        "This server does not have the image.",
        "Deploy it again where it was built. Several servers need one directory of images that they share.",
        extra={"retry_after": 10},
    )


def _part(header: str | None, size: int) -> tuple[int, int]:
    """From one range, as a client that goes on sends it. Anything else is answered with all."""
    match = _RANGE.fullmatch(header or "")
    if match is None:
        return 0, size - 1
    first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
    if first > last:
        raise Problem("bad_range", 416, f"The image has {size} bytes.", "Ask for a part that is there.")
    return first, last


async def _bytes(images: Images, path: Path, first: int, last: int) -> AsyncIterator[bytes]:
    images.streams += 1
    try:
        with path.open("rb") as file:
            file.seek(first)
            left = last - first + 1
            while left > 0 and (data := await asyncio.to_thread(file.read, min(CHUNK, left))):
                left -= len(data)
                yield data
    finally:
        images.streams -= 1


ROUTES: list[Any] = [send, send_of_project, fetch, unused, collect]
