"""What an operator sees: metrics with a token of its own, a doctor with remedies, a dashboard that fits them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from api.server import Replica, serve
from api.world import World
from gpuaas.control.app import doctor
from gpuaas.control.app.doctor import Process
from gpuaas.control.store import migrate, tokens
from gpuaas.control.store.transaction import Tx

TOKEN = "scrape-me-0123456789abcdef"
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "gpuaas.json"
NAME = re.compile(r"\bgpuaas_[a-z_]+")


@pytest.fixture(scope="module")
def scraped(module_database_url: str) -> Iterator[Replica]:
    with serve(module_database_url, metrics_token=TOKEN, state_dir=Path("/nowhere/yet")) as running:
        yield running


def page(replica: Replica, token: str = TOKEN) -> httpx.Response:
    return httpx.get(f"{replica.url}/metrics", headers={"Authorization": f"Bearer {token}"}, timeout=60)


def families(said: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", said, re.MULTILINE))


def test_the_scrape_token_opens_this_page_and_nothing_else(world: World, scraped: Replica, http: httpx.Client) -> None:
    assert page(scraped).status_code == 200
    for bad in ("", TOKEN[:-1], TOKEN + "x", "gpt_unknown"):
        assert page(scraped, bad or "x").status_code == 401
    for path in ("/api/v1/nodes", "/api/v1/whoami", "/api/v1/platform/doctor"):
        answer = httpx.get(scraped.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 401, path
    assert http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401, "not configured there"


def test_what_a_server_counts(world: World, scraped: Replica) -> None:
    editor = world.people["editor"].headers
    for _ in range(3):
        assert httpx.get(f"{scraped.url}/api/v1/whoami", headers=editor).status_code == 200
    httpx.get(f"{scraped.url}/api/v1/nothing")
    httpx.post(f"{scraped.url}/api/v1/tokens", json={}, headers=editor)
    said = page(scraped).text
    assert 'gpuaas_api_request_seconds_count{class="read",status="2xx"}' in said
    assert 'gpuaas_api_request_seconds_count{class="none",status="4xx"} 1' in said
    assert 'gpuaas_api_request_seconds_count{class="write",status="4xx"} 1' in said
    assert 'gpuaas_sweep_age_seconds{sweep="queue"}' in said
    assert 'gpuaas_store_connections{state="in_use"}' in said
    assert "gpuaas_store_up 1" in said
    queued = re.search(r"^gpuaas_queue_allocations (\d+)$", said, re.MULTILINE)
    assert queued is not None
    assert int(queued[1]) >= 3
    oldest = re.search(r"^gpuaas_queue_oldest_seconds (\S+)$", said, re.MULTILINE)
    assert oldest is not None
    assert float(oldest[1]) > 0


def test_phases_of_launches_are_timed_where_they_are_committed(world: World) -> None:
    """The world was launched through the store of the first server."""
    lines = list(world.store.meters.lines("launch_phase_seconds"))
    phases = {labels["phase"] for _, labels, _ in lines}
    assert {"place", "deliver", "ready"} <= phases
    (count,) = [value for suffix, _, value in world.store.meters.lines("launch_seconds") if suffix == "_count"]
    assert count >= 9
    ended = {tuple(labels.values()): value for _, labels, value in world.store.meters.lines("operations_total")}
    assert ended["launch", "failed"] == 3
    assert ended["release", "succeeded"] >= 3


def test_what_is_rolled_back_is_not_counted(world: World) -> None:
    def work(tx: Tx) -> None:
        tx.measure("operations_total", 1, kind="nothing", state="succeeded")
        raise ValueError("rolled back")

    with pytest.raises(ValueError, match="rolled back"):
        world.store.transact(work)
    assert "nothing" not in str(list(world.store.meters.lines("operations_total")))


def test_labels_stay_few(world: World, scraped: Replica) -> None:
    """A thousand made-up addresses make no new series."""
    with httpx.Client(base_url=scraped.url) as client:
        for number in range(100):
            client.get(f"/api/v1/allocations/x{number}", headers=world.people["viewer"].headers)
            client.get(f"/nothing/{number}")
            if number == 1:  # what there is of each kind, also of being asked for this page
                page(scraped)
                before = page(scraped).text.count("\n")
    assert page(scraped).text.count("\n") - before < 40


def test_the_dashboard_names_only_what_is_there(scraped: Replica) -> None:
    known = families(page(scraped).text)
    board = json.loads(DASHBOARD.read_text())
    named = set()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            for name in NAME.findall(target["expr"]):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                assert name in known or base in known, f"{panel['title']}: {name}"
                named.add(base if base in known else name)
    assert {"gpuaas_queue_allocations", "gpuaas_launch_phase_seconds", "gpuaas_link_lag_seconds"} <= named
    assert {"gpuaas_sweep_age_seconds", "gpuaas_api_request_seconds", "gpuaas_webhook_deliveries_pending"} <= named


def test_the_doctor_says_what_is_wrong_and_what_to_do(world: World, http: httpx.Client) -> None:
    answer = http.get("/api/v1/platform/doctor", headers=world.people["platform_ops"].headers).json()
    found = {item["name"]: item for item in answer["findings"]}
    assert found["schema"]["level"] == "ok"
    assert found["durability"]["level"] == "failure", "the tests' own PostgreSQL forgets on purpose"
    assert answer["ok"] is False
    assert {"database", "clock", "servers", "sweeps", "disk", "nodes", "node clocks", "queue", "webhooks"} <= set(found)
    assert found["secrets"]["level"] == "warning", "a server of the tests has no key"
    for item in answer["findings"]:
        assert (item["level"] == "ok") == (not item["problem"]) == (not item["remedy"]), item
    assert http.get("/api/v1/platform/doctor", headers=world.people["tenant_admin"].headers).status_code == 403


def test_a_server_without_a_directory_can_be_examined(world: World, scraped: Replica) -> None:
    headers = world.people["platform_ops"].headers
    found = httpx.get(f"{scraped.url}/api/v1/platform/doctor", headers=headers).json()["findings"]
    assert next(item["value"] for item in found if item["name"] == "disk").endswith("% of /")


def examined(world: World, **process: object) -> dict[str, doctor.Finding]:
    usual = {"version": "1", "advertise_url": "", "sweeps": {"queue": (5.0, 1.0)}, "pool_size": 20, "pool_used": 1}
    usual |= {"disk_path": "/", "disk_percent": 10.0}

    def work(tx: Tx) -> list[doctor.Finding]:
        caller = tokens.caller(tx, world.people["platform_ops"].secret or "")
        assert caller is not None
        return doctor.examine(tx, caller, Process(**{**usual, **process}), world.store.clock)  # type: ignore[arg-type]

    return {finding.name: finding for finding in world.store.transact(work)}


def test_each_thing_that_can_be_wrong_is_found(world: World, scraped: Replica) -> None:
    well = examined(world)
    assert (well["disk"].level, well["sweeps"].level, well["node clocks"].level) == ("ok", "ok", "ok")
    assert examined(world, disk_percent=96.0)["disk"].level == "failure"
    assert examined(world, disk_percent=90.0)["disk"].level == "warning"
    late = examined(world, sweeps={"queue": (5.0, 300.0), "old": (600.0, 601.0), "new": (5.0, None)})
    assert {"sweep queue", "sweep new"} <= set(late)
    assert "sweep old" not in late
    assert "pool" in examined(world, pool_used=20)
    assert "advertise-url" in well, "two servers are connected, and this one says nothing"
    assert "advertise-url" not in examined(world, advertise_url="http://a.example")

    def change(statement: str) -> None:
        world.store.transact(lambda tx: tx.conn.execute(text(statement)))

    change("UPDATE nodes SET clock_skew_seconds = -3700 WHERE name = 'node-1'")
    skewed = examined(world)["node clocks"]
    assert (skewed.level, skewed.value) == ("failure", "node-1 -3700 s")
    change("UPDATE nodes SET clock_skew_seconds = 5 WHERE name = 'node-1'")
    assert examined(world)["node clocks"].level == "warning"
    change("UPDATE nodes SET state = 'lost' WHERE name = 'node-2'")
    assert examined(world)["nodes"].problem == "1 are silent."
    change("UPDATE nodes SET state = 'ready', clock_skew_seconds = NULL")
    change("UPDATE alembic_version SET version_num = '9999'")
    assert examined(world)["schema"].level == "warning"
    change("UPDATE alembic_version SET version_num = '0001'")
    assert examined(world)["schema"].level == "failure"
    change(f"UPDATE alembic_version SET version_num = '{migrate.head()}'")
