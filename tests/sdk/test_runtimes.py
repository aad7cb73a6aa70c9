"""The catalog by the SDK: images in parts, names in paths."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gpuaas import ApiError, Client
from gpuaas.sdk.resources import runtimes
from sdk import samples
from sdk.playback import HANG_UP, Answer, Playback, problem

IMAGE = b"x" * 25
DIGEST = hashlib.sha256(IMAGE).hexdigest()
PATH = f"/api/v1/runtime-images/{DIGEST}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runtimes, "CHUNK", 10)
    made = tmp_path / "image"
    made.write_bytes(IMAGE)
    return made


def received(count: int) -> Answer:
    return Answer(200, {"digest": DIGEST, "size_bytes": 25, "received_bytes": count, "complete": count == 25})


def draft(**more: Any) -> dict[str, Any]:
    return samples.runtime_bundle(state="draft", digest=DIGEST, size_bytes=25, **more)


def test_an_image_is_sent_in_parts_from_where_the_server_has_it(server: Playback, client: Client, file: Path) -> None:
    server.on("POST", "/api/v1/runtime-bundles", Answer(201, draft(received_bytes=7)))
    server.on("PUT", PATH, HANG_UP, received(17), received(25))
    bundle = client.runtimes.describe({"bundle": "pytorch"})
    seen: list[tuple[int, int]] = []
    client.runtimes.send_image(bundle, file, lambda here, size: seen.append((here, size)))
    assert seen == [(17, 25), (25, 25)]
    asked = server.to("PUT", PATH)
    ranges = ["bytes 7-16/25", "bytes 7-16/25", "bytes 17-24/25"]
    assert [each.headers["Content-Range"] for each in asked] == ranges
    assert [each.body for each in asked] == [IMAGE[7:17], IMAGE[7:17], IMAGE[17:]]
    assert {each.headers["Content-Type"] for each in asked} == {"application/octet-stream"}


def test_a_file_that_is_too_short_is_noticed(server: Playback, client: Client, file: Path) -> None:
    file.write_bytes(IMAGE[:5])
    server.on("POST", "/api/v1/runtime-bundles", Answer(201, draft(received_bytes=5)))
    with pytest.raises(ValueError, match="its manifest says 25"):
        client.runtimes.send_image(client.runtimes.describe({}), file)


def test_names_with_a_colon_are_said_with_an_at(server: Playback, client: Client) -> None:
    path = "/api/v1/runtime-bundles/python%403.11%2Bml"
    server.on("GET", path, Answer(200, samples.runtime_bundle(slug="python")))
    assert client.runtimes.show("python:3.11+ml").slug == "python"


def test_an_image_is_verified_by_name(server: Playback, client: Client) -> None:
    found = {"bundle_id": "rb-x", "name": "python:3.11", "digest": DIGEST, "size_bytes": 25, "state": "damaged"}
    server.on("POST", "/api/v1/runtime-bundles/python%403.11/verify", Answer(200, found))
    assert client.runtimes.verify("python:3.11").state == "damaged"


def test_what_is_unknown_comes_with_the_nearest(server: Playback, client: Client) -> None:
    refused = problem(404, "unknown_runtime", nearest=["pytorch"])
    server.on("POST", "/api/v1/allocations/train-1/runtime-bundles", refused)
    with pytest.raises(ApiError) as error:
        client.runtimes.apply("train-1", "pytroch")
    assert error.value.extra["nearest"] == ["pytorch"]


def test_changes_on_a_machine(server: Playback, client: Client) -> None:
    where = "/api/v1/allocations/train-1/runtime-bundles"
    changed = Answer(202, {"allocation": samples.allocation(), "operation": samples.operation(kind="runtime.apply")})
    for method, path in (
        ("POST", where), ("POST", f"{where}/pytorch/rollback"), ("POST", f"{where}/pytorch/repair"),
        ("DELETE", f"{where}/pytorch"),
    ):  # fmt: skip
        server.on(method, path, changed)
    client.runtimes.apply("train-1", "pytorch", version="2", replace="tensorflow", idempotency_key="mine")
    client.runtimes.rollback("train-1", "pytorch", version="1")
    client.runtimes.repair("train-1", "pytorch")
    assert client.runtimes.remove("train-1", "pytorch").operation.kind == "runtime.apply"
    (asked,) = server.to("POST", where)
    assert asked.json == {"runtime_bundle_slug": "pytorch", "version": "2", "replace": "tensorflow"}
    assert server.to("POST", f"{where}/pytorch/rollback")[0].json == {"version": "1"}


def test_images_that_nobody_needs(server: Playback, client: Client) -> None:
    item = {"digest": "a" * 64, "size_bytes": 5, "kind": "upload", "name": ""}
    found = Answer(200, {"items": [item], "next_cursor": None, "size_bytes": 5})
    server.on("GET", "/api/v1/runtime-images/unused", found)
    server.on("POST", "/api/v1/runtime-images/collect", found)
    assert client.runtimes.unused_images(older_than_seconds=7200).items[0].kind == "upload"
    assert client.runtimes.collect_images().size_bytes == 5
    assert server.to("POST", "/api/v1/runtime-images/collect")[0].json == {"older_than_seconds": 86400}
