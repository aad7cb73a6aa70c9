"""docs/guides/backup.md, carried out: an older copy is restored while nodes run newer truth. Nothing is destroyed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import make_url

import databases
from e2e.test_spine import PASSWORD, Spine, eventually, node_ready, state
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.store.embedded import ROLE, VERSION, Embedded, _package
from gpuaas.node.host.fake_state import State

BINARIES = _package() / f"pginstall{VERSION}" / "bin"


def program(name: str, url: str, *arguments: str | Path) -> None:
    parts = make_url(url)
    where = ["-h", str(parts.query.get("host") or parts.host), "-p", str(parts.query.get("port") or parts.port or 5432)]
    done = subprocess.run(
        [BINARIES / name, *where, "-U", str(parts.username), *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def spine(tmp_path: Path, database_url: str) -> Iterator[Spine]:
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research", node="n1")
    running = Spine(tmp_path, database_url, made)
    try:
        running.start_server()
        running.start_agent()
        running("login", running.url, "--email", "ada@example.org", "--password-stdin", stdin=PASSWORD + "\n")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
        running("key", "add", "laptop", str(tmp_path / "key.pub"))
        eventually(lambda: node_ready(running))
        yield running
    finally:
        running.end()


def on_the_node(spine: Spine) -> dict[str, int]:
    """Machines that run there, and how often each was restarted."""
    found = msgspec.json.decode(next((spine.home / "agent" / "fake-host").glob("*.json")).read_bytes(), type=State)
    return {id: one.restarts for id, one in found.containers.items() if one.running}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_older_copy_is_restored_under_running_machines(spine: Spine, postgres: Embedded, tmp_path: Path) -> None:
    ids = {name: spine.json("launch", name, "--offer", "h100-1")["allocations"][0]["id"] for name in ("gone", "kept")}
    database = str(make_url(spine._database_url).database)
    program("pg_dump", postgres.admin_url, "-Fc", "-f", tmp_path / "backup.dump", database)

    # The hour after the backup.
    spine("release", "gone", "--yes")
    spine("restart", "kept", "--yes")
    ids["new"] = spine.json("launch", "new", "--offer", "h100-1")["allocations"][0]["id"]
    truth = on_the_node(spine)
    assert truth == {ids["kept"]: 1, ids["new"]: 0}

    # The database is lost. All servers are stopped, the copy is restored, servers start; the agent was never stopped.
    spine.kill("server")
    restored = f"{database}_restored"
    databases.drop(postgres.admin_url, restored)
    program("createdb", postgres.admin_url, "-O", ROLE, restored)
    try:
        program("pg_restore", postgres.admin_url, "-d", restored, tmp_path / "backup.dump")
        spine._database_url = databases.url_of(postgres.admin_url, restored)
        spine.start_server()
        eventually(lambda: node_ready(spine))
        eventually(lambda: state(spine, "kept") == "active")
        assert on_the_node(spine) == truth, "nothing was stopped, started or restarted"

        # What the copy had forgotten is reported.
        listed = {item["name"]: item["state"] for item in spine.json("ls", "--all")["items"]}
        assert listed == {"gone": "released", "kept": "active"}
        slots = spine.json("node", "show", "n1")["slots"]
        (aside,) = [slot for slot in slots if slot["state"] == "quarantined"]
        assert ids["new"] in aside["reason"]
        told = {entry["action"] for entry in spine.json("admin", "audit", "ls", "--platform")["items"]}
        assert {"allocation.drift", "slot.quarantined"} <= told
        found = {item["name"]: item for item in spine.json("admin", "doctor", code=1)["findings"]}
        assert found["slots"]["value"] == "1 quarantined"

        # And everybody works on.
        spine("restart", "kept", "--yes")
        assert on_the_node(spine)[ids["kept"]] == 2, "the counter goes on after the node's"
        for number in range(6):
            spine("launch", f"more-{number}", "--offer", "h100-1")
        spine("launch", "too-much", "--offer", "h100-1", code=5)  # the slot under `new` is given to nobody
        assert ids["new"] in on_the_node(spine)
        spine("release", "kept", "--yes")
        assert ids["kept"] not in on_the_node(spine)

        # Its users have saved their work: it may go.
        (stray,) = spine.json("node", "strays", "n1")["items"]
        assert (stray["id"], stray["slots"], stray["removed_at"]) == (ids["new"], [aside["name"]], None)
        assert spine.json("node", "remove-stray", "n1", ids["new"], "--yes")["removed_at"]
        eventually(lambda: ids["new"] not in on_the_node(spine))
        eventually(lambda: spine.json("node", "strays", "n1")["items"] == [])
        spine("node", "return", "n1", aside["name"])
        spine("launch", "in-its-place", "--offer", "h100-1")
        for which in ([], ["--platform"]):
            assert spine.json("admin", "audit", "verify", *which)["intact"] is True
    finally:
        spine.end()
        databases.drop(postgres.admin_url, restored)
