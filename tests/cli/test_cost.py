"""`gpuaas usage`, `budget`, `statement`, `price`: what they ask for and what they print."""

import csv
import io
from typing import Any

from cli.conftest import Gpuaas
from sdk import samples
from sdk.playback import Answer, Playback

PROJECT = "/api/v1/projects/research"


def used(key: str, name: str, micros: int) -> dict[str, Any]:
    return {"key": key, "name": name, "seconds": 5400.0, "gpu_seconds": 10800.0, "amount_micros": micros}


def usage(*items: dict[str, Any]) -> dict[str, Any]:
    total = used("", "", sum(item["amount_micros"] for item in items))
    return {"starts_at": samples.AT, "ends_at": samples.LATER, "by": "user", "total": total, "items": list(items)}


def line(**more: Any) -> dict[str, Any]:
    return {
        "usage_id": "ug-1",
        "correction_id": None,
        "project_id": "pj-1",
        "resource_id": "al-1",
        "name": "train-1",
        "user_id": "us-1",
        "component": "allocation",
        "offer": "h100-1",
        "gpu_model": "H100",
        "gpu_count": 1,
        "started_at": samples.AT,
        "ended_at": samples.LATER,
        "seconds": 1.5,
        "gpu_seconds": 1.5,
        "micros_per_hour": 2_500_000,
        "price_book": 3,
        "amount_micros": 1042,
        "reason": "",
        **more,
    }


def test_usage_of_a_month_by_user(gpuaas: Gpuaas, server: Playback) -> None:
    ada, eve = used("us-1", "ada@example.org", 12_340_000), used("us-2", "eve@example.org", 7)
    server.on("GET", f"{PROJECT}/usage", Answer(200, usage(ada, eve)))
    said = gpuaas("usage", "-p", "research", "--by", "user", "--month", "2029-12")
    assert said.code == 0, said.err
    assert [row.split() for row in said.out.splitlines()] == [
        ["USER", "HOURS", "GPU", "HOURS", "COST"],
        ["ada@example.org", "1.500", "3.000", "12.34"],
        ["eve@example.org", "1.500", "3.000", "0.0000"],
        ["total", "1.500", "3.000", "12.3400"],
    ]
    query = server.asked[0].query
    assert query == "from=2029-12-01T00%3A00%3A00%2B00%3A00&to=2030-01-01T00%3A00%3A00%2B00%3A00&by=user"


def test_csv_is_exact_and_no_formula(gpuaas: Gpuaas, server: Playback) -> None:
    given = line(correction_id="uc-1", amount_micros=-1042, seconds=-1.5, reason="=cmd()")
    server.on("GET", f"{PROJECT}/usage/lines", Answer(200, samples.page(line(), given)))
    said = gpuaas("usage", "-p", "research", "--csv", "--from", "2029-12-24")
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [(row["amount_micros"], row["amount"], row["reason"]) for row in rows] == [
        ("1042", "0.001042", ""),
        ("-1042", "-0.001042", "'=cmd()"),
    ]
    assert server.asked[0].query.startswith("limit=200&from=2029-12-24T00%3A00%3A00%2B00%3A00")


def test_a_month_and_a_period_are_too_much(gpuaas: Gpuaas) -> None:
    assert gpuaas("usage", "-p", "research", "--month", "2029-12", "--from", "2029-12-24").code == 2
    assert gpuaas("usage", "-p", "research", "--month", "2029-13").code == 2


def test_a_budget_of_an_organisation(gpuaas: Gpuaas, server: Playback) -> None:
    standing = {"org_id": "og-1", "project_id": None, "month": "2030-01", "spent_micros": 99, "alerts": [50, 80]}
    server.on("PUT", "/api/v1/orgs/acme/budget", Answer(200, {**standing, "amount_micros": 100}))
    said = gpuaas("budget", "set", "0.0001", "--org", "acme")
    assert server.asked[0].json == {"amount_micros": 100}
    assert "99 %" in said.out
    assert "50 %, 80 %" in said.out
    assert gpuaas("budget", "set", "0.00000001", "--org", "acme").code == 2


def test_prices_are_published_whole(gpuaas: Gpuaas, server: Playback) -> None:
    book = {"offers": {"h100-1": 2_400_000}, "gpus": {"H100": 2_500_000}, "cpu": 10_000, "memory_gib": 0}
    made = {
        "version": 2,
        "valid_from": samples.AT,
        "valid": False,
        "note": "",
        "created_by": "us-1",
        "created_at": samples.AT,
    }
    server.on("POST", "/api/v1/prices", Answer(201, {**book, **made}))
    said = gpuaas("price", "publish", "--offer", "h100-1=2.40", "--gpu", "H100=2.5", "--cpu", "0.01")
    assert said.code == 0, said.err
    assert server.asked[0].json == {"offers": {"h100-1": 2_400_000}, "gpus": {"H100": 2_500_000}, "cpu": 10_000}
    assert "version 2" in said.out


def test_a_statement_that_was_altered_is_a_failure(gpuaas: Gpuaas, server: Playback) -> None:
    month = {"project_id": "pj-1", "month": "2029-12", "starts_at": samples.AT, "ends_at": samples.LATER, "lines": 3}
    closed = {**month, "amount_micros": 5_000_000, "hash": "ab" * 32, "closed_at": samples.LATER}
    server.on(
        "GET",
        f"{PROJECT}/statements/2029-12",
        Answer(200, {**closed, "intact": True}),
        Answer(200, {**closed, "intact": False}),
    )
    said = gpuaas("statement", "show", "2029-12", "-p", "research")
    assert (said.code, "intact" in said.out) == (0, True)
    said = gpuaas("statement", "show", "2029-12", "-p", "research")
    assert (said.code, "altered" in said.out) == (1, True)
