"""Curves, health and the page for Prometheus, over HTTP."""

from datetime import timedelta

import httpx
import pytest

from api.world import World
from control.fleet import sample

API = "/api/v1"


@pytest.fixture
def mine(world: World) -> str:
    """The active machine, measured just now."""
    id = world.own.allocations["active"]
    now = world.store.clock.now().timestamp()
    world.agent.sample(sample(id, now, cpu_seconds=500.0, sessions=1, memory_bytes=2**32 - 1))
    return f"{API}/allocations/{id}"


def test_rates_are_counted_by_the_server(world: World, http: httpx.Client, mine: str) -> None:
    headers = world.people["viewer"].headers
    found = http.get(f"{mine}/metrics", params={"step": 10}, headers=headers).json()
    assert found["step_seconds"] == 10
    assert found["points"][0]["cpus_used"] is None
    assert found["points"][1]["cpus_used"] == pytest.approx(2.0, rel=0.01)
    assert found["points"][1]["cpu_percent"] == pytest.approx(50.0, rel=0.01)
    assert found["points"][1]["network_sent_bytes_per_second"] == pytest.approx(500, rel=0.01)
    assert found["points"][1]["gpus"][0]["temperature_celsius"] == 60.5
    later = (world.store.clock.now() + timedelta(seconds=-5)).isoformat()
    cut = http.get(f"{mine}/metrics", params={"since": later}, headers=headers).json()["points"]
    assert 0 < len(cut) < len(found["points"])


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"since": "2099-01-01T00:00:00Z"}, "invalid_request"),
        ({"since": "2029-13-01T00:00:00Z"}, "invalid_request"),
        ({"since": "yesterday"}, "invalid_request"),
        ({"since": "2020-01-01T00:00:00Z", "step": "10"}, "too_many_points"),
        ({"step": "1"}, "too_many_points"),
        ({"step": "0"}, "invalid_request"),
    ],
)
def test_a_range_is_bounded(world: World, http: httpx.Client, mine: str, query: dict[str, str], code: str) -> None:
    answer = http.get(f"{mine}/metrics", params=query, headers=world.people["viewer"].headers)
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text


def test_the_whole_day_fits(world: World, http: httpx.Client, mine: str) -> None:
    query = {"since": "2020-01-01T00:00:00Z"}
    found = http.get(f"{mine}/metrics", params=query, headers=world.people["viewer"].headers).json()
    assert found["step_seconds"] == 240
    query["step"] = "90"
    assert http.get(f"{mine}/metrics", params=query, headers=world.people["viewer"].headers).status_code == 200


def test_health_says_what_is_wrong(world: World, http: httpx.Client, mine: str) -> None:
    found = http.get(f"{mine}/health", headers=world.people["viewer"].headers).json()
    assert found["status"] == "degraded"
    assert [finding["code"] for finding in found["findings"]] == ["memory_near_limit", "sessions"]
    assert found["use"]["sessions"] == 1
    failed = f"{API}/allocations/{world.own.allocations['failed']}/health"
    found = http.get(failed, headers=world.people["viewer"].headers).json()
    assert (found["status"], found["use"]) == ("unhealthy", None)
    assert "The base image is missing." in found["findings"][0]["message"]


def test_all_machines_at_once_with_pages(world: World, http: httpx.Client, mine: str) -> None:
    headers, query = world.people["viewer"].headers, {"project": "lab", "limit": "2"}
    seen = []
    while True:
        page = http.get(f"{API}/allocation-health", params=query, headers=headers).json()
        seen += page["items"]
        if not page["next_cursor"]:
            break
        query["cursor"] = page["next_cursor"]
    listed = http.get(f"{API}/allocations", params={"project": "lab"}, headers=headers).json()["items"]
    assert [item["allocation_id"] for item in seen] == [item["id"] for item in listed]
    assert {item["name"]: item["status"] for item in seen}["active"] == "degraded"


def test_prometheus_gets_the_fleet(world: World, http: httpx.Client, mine: str) -> None:
    answer = http.get("/metrics", headers=world.people["platform_ops"].headers)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'gpuaas_nodes{state="ready"} 2' in lines
    assert 'gpuaas_nodes{state="lost"} 0' in lines
    assert "gpuaas_agents_linked 2" in lines
    labels = f'allocation="{world.own.allocations["active"]}",name="active",org="acme",project="lab",node="node-1"'
    assert f"gpuaas_allocation_cpu_seconds_total{{{labels}}} 500.0" in lines
    assert "# TYPE gpuaas_allocation_cpu_seconds_total counter" in lines
    assert len([line for line in lines if line.startswith("# TYPE")]) == len(
        {line for line in lines if "# TYPE" in line}
    )
    assert not [line for line in lines if line.endswith("None")]
