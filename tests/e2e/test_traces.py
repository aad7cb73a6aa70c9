"""One launch as one trace: the command, the requests, the operation with its phases, and the steps on the node."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.collector import Collector, collector
from e2e.test_spine import PASSWORD, Spine, eventually, node_ready
from gpuaas.control.bootstrap import bootstrap


@pytest.fixture
def traced(tmp_path: Path, database_url: str) -> Iterator[tuple[Spine, Collector]]:
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research", node="n1")
    running = Spine(tmp_path, database_url, made)
    with collector() as found:
        running.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = found.url
        try:
            running.start_server()
            running.start_agent()
            running("login", running.url, "--email", "ada@example.org", "--password-stdin", stdin=PASSWORD + "\n")
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
            running("key", "add", "laptop", str(tmp_path / "key.pub"))
            eventually(lambda: node_ready(running))
            yield running, found
        finally:
            running.end()


def test_a_launch_is_one_trace_from_the_command_to_the_node(traced: tuple[Spine, Collector]) -> None:
    spine, found = traced
    spine("launch", "train-1", "--offer", "h100-1")
    operation = spine.json("op", "ls", "train-1")["items"][0]
    correlation_id = operation["correlation_id"]

    def names(service: str) -> set[str]:
        return {span.name for span in found.under(correlation_id) if span.service == service}

    eventually(lambda: {"ensure container", "ensure network"} <= names("gpuaas-agent"))
    eventually(lambda: "operation launch" in names("gpuaas-server"))
    assert names("gpuaas-cli") == {"gpuaas launch"}
    assert {"POST /api/v1/allocations", "phase place", "phase ready"} <= names("gpuaas-server")
    trace = found.under(correlation_id)
    assert len({span.trace_id for span in trace}) == 1
    assert len({span.parent_id for span in trace}) == 1
    assert not any(span.failed for span in trace)
    (posted,) = [span for span in trace if span.name == "POST /api/v1/allocations"]
    assert posted.attributes["http.response.status_code"] == 202
    (launched,) = [span for span in trace if span.name == "operation launch"]
    assert launched.attributes["gpuaas.allocation"] == operation["allocation_id"]
    assert launched.seconds >= max(span.seconds for span in trace if span.name.startswith("phase "))
    others = {span.trace_id for span in found.spans if span.attributes["gpuaas.correlation_id"] != correlation_id}
    assert trace[0].trace_id not in others


def test_a_collector_that_is_away_delays_nobody_for_long(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GPUAAS_SERVER": "http://127.0.0.1:9",
                   "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}  # fmt: skip
    command = [sys.executable, "-m", "gpuaas.cli.main", "offer", "ls"]
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr  # not signed in
    assert time.monotonic() - started < 20
    assert "Traceback" not in done.stderr


def test_without_the_setting_nothing_is_imported() -> None:
    code = (
        "import sys; from gpuaas.kit import traces; traces.setup('x'); traces.record('a', 'cr-1', 0, 1)\n"
        "with traces.span('a', 'cr-1'): pass\n"
        "traces.shutdown(); sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PATH": "/usr/bin"}).returncode == 0


def test_a_missing_package_is_said_and_nothing_else_happens() -> None:
    code = (
        "import sys, logging; logging.basicConfig(); sys.modules['opentelemetry.sdk.trace'] = None\n"
        "from gpuaas.kit import traces; traces.setup('x'); sys.exit(traces.enabled())"
    )
    environment = {"PATH": "/usr/bin", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert "gpuaas[otel]" in done.stderr
