"""Samples from the real agent to the command line: the agent and the server of the product, in threads of this one."""

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from api.server import serve
from api.world import key_line
from e2e.running import PATIENCE_SECONDS, agent, eventually
from gpuaas import Client
from gpuaas.cli.main import run as gpuaas
from gpuaas.control.bootstrap import bootstrap
from gpuaas.node.config import AgentConfig
from gpuaas.node.host.fake import FakeHost

XID = "XID 79: the GPU has fallen off the bus"


@pytest.fixture
def host() -> FakeHost:
    return FakeHost("2xH100", "n1")


@pytest.fixture
def client(tmp_path: Path, database_url: str, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    made = bootstrap(database_url, email="ada@example.org", password="correct horse", org="lab", project="p", node="n1")
    with serve(database_url) as replica:
        for name in [name for name in os.environ if name.startswith("GPUAAS_") and name != "GPUAAS_TEST_STATE"]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("GPUAAS_SERVER", replica.url)
        monkeypatch.setenv("GPUAAS_TOKEN", made.token)
        monkeypatch.setenv("GPUAAS_CONFIG", str(tmp_path / "config.json"))
        config = AgentConfig(replica.url, tmp_path, "n1", join_token=made.join_token or "", sample_seconds=1.1)
        with agent(config, host), Client(replica.url, made.token) as connected:
            connected.keys.add("laptop", key_line())
            yield connected


def say(*arguments: str, code: int = 0) -> str:
    said = io.StringIO()
    with redirect_stdout(said):
        assert gpuaas(list(arguments)) == code, said.getvalue()
    return said.getvalue()


def test_a_machine_is_measured_and_shown(client: Client, host: FakeHost) -> None:
    eventually(lambda: any(node.ready and node.state == "ready" for node in client.nodes.list()))
    client.wait(client.allocations.launch("train-1", offer="h100-1").operations[0], timeout_seconds=PATIENCE_SECONDS)

    def measured() -> bool:
        use = client.allocations.health("train-1").use
        return use is not None and use.cpus_used is not None

    eventually(measured)
    found = client.allocations.health("train-1")
    assert (found.status, found.findings) == ("healthy", [])
    assert found.use is not None
    assert found.use.cpu_percent == pytest.approx(25.0, abs=2.5)
    points = client.allocations.metrics("train-1", step_seconds=10).points
    assert points[-1].gpus[0].busy_percent is not None
    line = say("top", "--once").splitlines()[1].split()
    assert (line[0], line[1], line[-1]) == ("train-1", "active", "healthy")
    assert line[2].endswith("%")
    assert "health  healthy" in say("health", "train-1")

    # Its GPU breaks: the machine goes on and says so, and nobody gets the slot after it.
    (gpu,) = host.state.devices[found.allocation_id].gpus
    host.trouble[gpu] = XID
    eventually(lambda: client.allocations.health("train-1").status == "unhealthy")
    assert XID in say("health", "train-1", code=1)
    eventually(lambda: [slot.state for slot in client.nodes.show("n1").slots].count("quarantined") == 1)
    assert client.allocations.show("train-1").state == "active"
    gone = client.allocations.release("train-1", confirm="train-1").operation
    client.wait(gone, timeout_seconds=PATIENCE_SECONDS)
    (broken,) = [slot for slot in client.nodes.show("n1").slots if slot.state == "quarantined"]
    assert XID in broken.reason
    assert broken.allocation_id is None
    assert client.allocations.plan("h100-1", count=2).fits is False
