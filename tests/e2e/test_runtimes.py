"""A runtime from an operator's disk to a machine: the product's server, agent, SDK and HTTP; a modelled machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.server import serve
from api.world import key_line
from control import catalog
from e2e.running import PATIENCE_SECONDS, agent, eventually
from gpuaas import Client
from gpuaas.control.bootstrap import bootstrap
from gpuaas.node.config import AgentConfig
from gpuaas.node.host.fake import FakeHost
from gpuaas.wire.api import OperationView


@pytest.fixture
def host() -> FakeHost:
    return FakeHost("2xH100", "n1")


@pytest.fixture
def client(tmp_path: Path, database_url: str, host: FakeHost) -> Iterator[Client]:
    made = bootstrap(database_url, email="ada@example.org", password="correct horse", org="lab", project="p", node="n1")
    with serve(database_url) as replica:
        config = AgentConfig(replica.url, tmp_path, "n1", join_token=made.join_token or "")
        with agent(config, host), Client(replica.url, made.token) as connected:
            connected.keys.add("laptop", key_line())
            eventually(lambda: any(node.ready and node.state == "ready" for node in connected.nodes.list()))
            yield connected


def done(client: Client, operation: OperationView) -> OperationView:
    client.wait(operation, timeout_seconds=PATIENCE_SECONDS)
    return client.operations.show(operation.id)


def publish(client: Client, directory: Path, slug: str, version: str) -> str:
    """With an image of some megabytes, sent and fetched in parts. Its digest."""
    data = f"{slug} {version} ".encode() * 300_000
    file = directory / version
    file.write_bytes(data)
    described = client.runtimes.describe(catalog.manifest(slug, version, data))
    client.runtimes.send_image(described, file)
    client.runtimes.publish(described.id)
    return described.digest


def test_a_runtime_from_the_catalog_to_a_running_machine(client: Client, host: FakeHost, tmp_path: Path) -> None:
    slug = catalog.new_slug()
    old = publish(client, tmp_path, slug, "1.0")
    launched = client.allocations.launch("train-1", offer="h100-1")
    client.wait(launched.operations[0], timeout_seconds=PATIENCE_SECONDS)
    id = client.allocations.show("train-1").id
    starts = host.starts[id]

    def seen() -> tuple[set[str], str | None]:
        """What the machine sees, and which version is current."""
        return set(host.state.views.get(id, {})), host.state.links.get(id, {}).get(slug)

    done(client, client.runtimes.apply("train-1", slug).operation)
    assert seen() == ({f"{slug}/1.0"}, "1.0")
    assert host.images() == {old: host.images()[old]}
    new = publish(client, tmp_path, slug, "2.0")
    done(client, client.runtimes.apply("train-1", slug, version="2.0").operation)
    assert seen() == ({f"{slug}/1.0", f"{slug}/2.0"}, "2.0")
    done(client, client.runtimes.rollback("train-1", slug).operation)
    assert seen()[1] == "1.0"

    # A byte changes on the node's disk: a repair finds it, and fetches the image again.
    host.damaged.add(old)
    done(client, client.runtimes.repair("train-1", slug).operation)
    assert host.damaged == set()
    assert set(host.images()) == {old, new}
    assert seen()[1] == "1.0"

    done(client, client.allocations.restart("train-1", confirm="train-1").operation)
    assert seen()[1] == "1.0"
    client.runtimes.remove("train-1", slug)
    eventually(lambda: seen() == (set(), None))
    assert host.starts[id] == starts + 1
    assert client.allocations.show("train-1").state == "active"
