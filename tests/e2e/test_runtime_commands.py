"""Runtimes by the command line: real processes of server and agent, the image over HTTP; only the host is modelled."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control import catalog
from e2e.test_spine import Spine, eventually, spine  # noqa: F401 a fixture
from gpuaas import Client, GpuaasError
from gpuaas.kit.registry import Place, Registry
from gpuaas.sdk.retry import Retry
from oci import credentials, needs_registry, registry
from runtimes.builds import needs_tools
from runtimes.bundle import Bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # many processes, on a machine that does other things too
MORE = 3 * 2**20 + 17  # several parts on its way to the node


@pytest.fixture
def client(spine: Spine) -> Iterator[Client]:  # noqa: F811
    with Client(spine.url, spine.made.token, timeout_seconds=30.0, retry=Retry(attempts=3)) as made:
        yield made


def publish(client: Client, directory: Path, version: str, length: int = 100) -> str:
    image = directory / f"image-{version}"
    image.write_bytes(catalog.content("tools", version, length))
    bundle = client.runtimes.describe(catalog.manifest("tools", version, image.read_bytes()))
    client.runtimes.send_image(bundle, image)
    return client.runtimes.publish(bundle.id).digest


def on(spine: Spine, name: str) -> dict[str, Any]:  # noqa: F811
    """The one runtime that it has."""
    (item,) = spine.json("runtime", "list", "--on", name)["items"]
    return dict(item)


@pytest.mark.acceptance("RT03")
def test_applied_upgraded_rolled_back_and_removed(spine: Spine, client: Client, tmp_path: Path) -> None:  # noqa: F811
    publish(client, tmp_path, "1", MORE)
    publish(client, tmp_path, "2")
    launched = spine.json("launch", "train-1", "--offer", "h100-1", "--runtime", "tools:1")
    (applying,) = launched["runtime_operations"]
    assert "succeeded" in spine("op", "follow", applying["id"])
    assert on(spine, "train-1")["current_version"] == "1"
    starts = spine.json("show", "train-1")["active_at"]

    spine("runtime", "use", "train-1", "tools", "--version", "2")
    assert (on(spine, "train-1")["current_version"], on(spine, "train-1")["previous_version"]) == ("2", "1")
    spine("runtime", "rollback", "train-1", "tools")
    spine("runtime", "repair", "train-1", "tools")
    item = on(spine, "train-1")
    assert (item["current_version"], item["versions"][0]["observed"]) == ("1", "ready")

    spine("restart", "train-1", "--yes")
    assert on(spine, "train-1")["current_version"] == "1"
    spine("runtime", "remove", "train-1", "tools")
    assert spine.json("runtime", "list", "--on", "train-1")["items"] == []
    history = spine.json("runtime", "history", "train-1")["items"]
    assert [(each["action"], each["version"]) for each in history] == [
        ("repair", "1"),
        ("rollback", "1"),
        ("apply", "2"),
        ("apply", "1"),
    ]
    assert spine.json("show", "train-1")["active_at"] == starts, "it ran all the time"
    assert spine("runtime", "apply", "train-1", "tool", code=4) == ""
    assert spine.json("admin", "audit", "verify")["intact"] is True


def test_an_image_that_is_damaged_on_the_server_reaches_no_machine(
    spine: Spine,  # noqa: F811
    client: Client,
    tmp_path: Path,
) -> None:
    """What arrives is compared with its digest; the machine runs on without, and the version before stays."""
    publish(client, tmp_path, "1")
    bad = publish(client, tmp_path, "2", MORE)
    spine("launch", "train-1", "--offer", "h100-1")
    spine("runtime", "apply", "train-1", "tools:1")
    image = spine.home / "runtime-images" / f"{bad}.erofs"
    data = bytearray(image.read_bytes())
    data[len(data) // 2] ^= 1
    image.write_bytes(bytes(data))
    started = spine.json("runtime", "apply", "train-1", "tools:2", "--detach")["operation"]["id"]
    eventually(lambda: spine.json("op", "show", started)["state"] == "failed")
    item = on(spine, "train-1")
    assert (item["desired_version"], item["current_version"]) == ("1", "1")
    assert spine.json("show", "train-1")["state"] == "active"


@needs_registry
def test_an_image_comes_from_a_registry_and_the_server_is_not_asked(
    spine: Spine,  # noqa: F811
    client: Client,
    tmp_path: Path,
) -> None:
    digest = publish(client, tmp_path, "1", MORE)
    (spine.home / "runtime-images" / f"{digest}.erofs").unlink()
    with registry(tmp_path / "registry", login=True) as address:
        file = credentials(tmp_path / "docker.json", address)
        Registry(Place.parse(f"{address}/team"), file).send_blob(f"sha256:{digest}", tmp_path / "image-1")
        spine.environment |= {"GPUAAS_IMAGE_REGISTRY": f"{address}/team"}
        spine.environment |= {"GPUAAS_IMAGE_REGISTRY_CREDENTIALS": str(file)}
        spine.kill("agent")
        spine.start_agent()
        spine("launch", "train-1", "--offer", "h100-1")
        spine("runtime", "apply", "train-1", "tools:1")
    assert on(spine, "train-1")["current_version"] == "1"


@needs_tools
def test_a_project_has_a_runtime_of_its_own(spine: Spine, client: Client, tmp_path: Path) -> None:  # noqa: F811
    """An editor without any role on the platform publishes it; a machine of the project has it, its node fetched it."""
    project = spine.json("project", "ls")["items"][0]["id"]
    client.service_accounts.create(project, "ci", role="editor")
    token = client.service_accounts.create_token(project, "ci", "t", scopes=["project_runtime.*"]).secret
    bundle = Bundle(tmp_path / "made", "labtools")
    with tarfile.open(bundle.write(tmp_path / "labtools.tar")) as archive:
        archive.extractall(tmp_path, filter="data")
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    with Client(spine.url, token, timeout_seconds=30.0) as editor:
        draft = editor.runtimes.describe(manifest, project=project)
        editor.runtimes.send_image(draft, tmp_path / "image.erofs")
        made = editor.runtimes.publish(draft.id, project=project)
        assert (made.state, made.scope, made.support) == ("published", "project", "custom")
        with pytest.raises(GpuaasError, match="runtime_bundle"):
            editor.runtimes.describe(manifest)
    launched = spine.json("launch", "train-1", "--offer", "h100-1", "--runtime", "labtools")
    (applying,) = launched["runtime_operations"]
    assert "succeeded" in spine("op", "follow", applying["id"])
    assert (on(spine, "train-1")["current_version"], on(spine, "train-1")["support"]) == ("1.0", "custom")
