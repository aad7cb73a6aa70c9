"""Webhooks through the command line, with real servers; and one that is killed in the middle of a delivery."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from control.webhooks.target import target
from e2e.test_spine import PASSWORD, Spine, eventually
from gpuaas.control.bootstrap import bootstrap
from gpuaas.sdk import verify_webhook


@pytest.fixture
def spine(tmp_path: Path, database_url: str) -> Iterator[Spine]:
    """A server without a node: what happens is people coming and going."""
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research")
    running = Spine(tmp_path, database_url, made)
    running.environment["GPUAAS_WEBHOOK_NETWORKS"] = "127.0.0.0/8 ::1/128"
    try:
        running.start_server()
        running("login", running.url, "--email", "ada@example.org", "--password-stdin", stdin=PASSWORD + "\n")
        yield running
    finally:
        running.end()


def logged(spine: Spine, *more: str) -> list[tuple[str, str, int]]:
    return [(d["type"], d["state"], d["attempts"]) for d in spine.json("webhook", "deliveries", "w", *more)["items"]]


def test_from_the_command_line(spine: Spine) -> None:
    with target() as there:
        secret = spine("webhook", "create", "w", there.url, "--type", "project.*").strip()
        assert [item["name"] for item in spine.json("webhook", "ls")["items"]] == ["w"]
        spine("project", "network", "research", "open")
        headers, body = there.wait_for(1)[0]
        event = verify_webhook(secret, headers, body)
        assert (event.type, event.data) == ("project.network", {"open": True})
        eventually(lambda: logged(spine) == [("project.network", "delivered", 1)])
        first = spine.json("webhook", "deliveries", "w")["items"][0]
        assert spine.json("webhook", "replay", "w", first["id"])["deliveries"] == 1
        assert spine.json("webhook", "replay", "w", "--first", "1", "--last", str(event.seq))["deliveries"] == 2
        again = [verify_webhook(secret, *one) for one in there.wait_for(4)[1:]]
        assert [one.id for one in again if one.seq == event.seq] == [event.id] * 2
        assert "member.set" not in {one.type for one in again}
        other = spine("webhook", "rotate", "w", "--overlap", "1h").strip()
        spine("webhook", "change", "w", "--type", "member.*")
        spine("admin", "user", "create", "bob@example.org")
        spine("member", "add", "bob@example.org")
        headers, body = there.wait_for(5)[4]
        assert verify_webhook(secret, headers, body) == verify_webhook(other, headers, body)
        spine("webhook", "remove", "w", code=2)
        spine("webhook", "remove", "w", "--yes")
        assert spine.json("webhook", "ls")["items"] == []
        spine("webhook", "create", "w", there.url, "--type", "machine.*", code=2)
    actions = [entry["action"] for entry in spine.json("admin", "audit", "ls")["items"]]
    assert [action for action in actions if action.startswith("webhook")] == [
        *("webhook.create", "webhook.replay", "webhook.replay", "webhook.rotate", "webhook.change", "webhook.remove")
    ]
    assert spine.json("admin", "audit", "verify")["intact"] is True


@pytest.mark.slow
def test_a_killed_server_loses_no_delivery(spine: Spine) -> None:
    """It dies while a target keeps it waiting, with more behind; the next server sends everything."""
    with target() as there:
        there.script = [there.hang]
        spine("webhook", "create", "w", there.url, "--type", "member.*")
        for number in range(3):
            spine("admin", "user", "create", f"u{number}@example.org")
            spine("member", "add", f"u{number}@example.org")
        there.wait_for(1)
        spine.kill("server")
        spine.start_server()
        eventually(lambda: {state for _, state, _ in logged(spine)} == {"delivered"})
        tries = [(headers["Gpuaas-Attempt"], headers["Gpuaas-Event-Id"]) for headers, _ in there.requests]
        first = tries[0][1]
        assert ("1", first) in tries
        assert ("2", first) in tries
        assert len({id for _, id in tries}) == 3
