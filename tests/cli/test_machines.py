"""Launch, list, restart, release, follow."""

import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.conftest import Gpuaas
from sdk import samples
from sdk.playback import Answer, Playback, problem

ALLOCATIONS = "/api/v1/allocations"
MINE = f"{ALLOCATIONS}/al-aaaaaaaaaaaaaaaa"
FOLLOW = "/api/v1/operations/op-aaaaaaaaaaaaaaaa/follow"


def follows(server: Playback, *operations: dict[str, Any]) -> None:
    frames = tuple(f"event: operation\ndata: {json.dumps(item)}\n\n".encode() for item in operations)
    server.on("GET", FOLLOW, Answer(chunks=frames, headers={"Content-Type": "text/event-stream"}))


def launched(**more: Any) -> Answer:
    body = {"allocations": [samples.allocation(state="provisioning")], "operations": [samples.operation()]}
    return Answer(202, {**body, "queued": False, "reasons": [], **more})


def test_launch_waits_and_says_how_to_get_in(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("POST", ALLOCATIONS, launched())
    server.on("GET", MINE, Answer(200, samples.allocation()))
    follows(server, samples.operation(), samples.operation("succeeded"))
    said = gpuaas("launch", "train-1", "--offer", "h100-1", "--key", "laptop", "--project", "research")
    assert (said.code, said.out) == (0, "ssh -p 20000 gpu@127.0.0.1\n")
    assert said.err.splitlines() == [
        "launch train-1: place done (1.5s)",
        "launch train-1: ready running",
        "launch train-1: ready done (1.5s)",
        "launch train-1: succeeded",
    ]
    wanted = {"name": "train-1", "offer": "h100-1", "project": "research", "access": {"keys": ["laptop"]}}
    assert server.to("POST", ALLOCATIONS)[0].json == wanted
    said = gpuaas("launch", "train-1", "--offer", "h100-1", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.json["allocations"][0]["state"] == "active"
    assert said.json["operations"][0]["state"] == "succeeded"


def test_a_failed_launch_is_exit_code_1(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("POST", ALLOCATIONS, launched())
    server.on("GET", MINE, Answer(200, samples.allocation(state="failed")))
    follows(server, samples.operation("failed"))
    said = gpuaas("launch", "train-1", "--offer", "h100-1")
    assert said.code == 1
    assert "The node's disk is full." in said.err
    assert "gpuaas op show op-aaaaaaaaaaaaaaaa" in said.err
    said = gpuaas("launch", "train-1", "--offer", "h100-1", "--json")
    assert (said.code, said.json["operations"][0]["state"]) == (1, "failed")
    assert json.loads(said.err)["code"] == "no_disk"


def test_detach_and_queue(gpuaas: Gpuaas, server: Playback) -> None:
    reasons = [{"code": "busy", "message": "in use", "count": 8, "nodes": ["n1"]}]
    server.on("POST", ALLOCATIONS, launched(queued=True, reasons=reasons))
    said = gpuaas("launch", "train-1", "--offer", "h100-1", "--wait", "--detach")
    assert said.code == 0
    assert "in use (8: n1)" in said.err
    assert "gpuaas op follow op-aaaaaaaaaaaaaaaa" in said.out
    assert server.asked[-1].json["wait"] is True


def test_no_capacity_is_exit_code_5(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("POST", ALLOCATIONS, problem(409, "no_capacity"))
    assert gpuaas("launch", "train-1", "--offer", "h100-1").code == 5
    plan = {"fits": False, "realisations": [], "reasons": [{"code": "x", "message": "full", "count": 1, "nodes": []}]}
    server.on("POST", f"{ALLOCATIONS}/plan", Answer(200, plan))
    said = gpuaas("plan", "--offer", "h100-1")
    assert (said.code, said.out) == (5, "Does not fit: full (1).\n")


def test_a_plan_with_a_runtime(gpuaas: Gpuaas, server: Playback) -> None:
    why = {"code": "runtime_unfit", "message": "the machine cannot use the runtime: x", "count": 2, "nodes": []}
    plan = {"fits": False, "realisations": [], "reasons": [why], "runtime": "torch:2"}
    server.on("POST", f"{ALLOCATIONS}/plan", Answer(200, plan))
    said = gpuaas("plan", "--offer", "h100-1", "--runtime", "torch", "--for", "2h", "--preemptible")
    assert (said.code, "cannot use the runtime: x (2)" in said.out) == (5, True)
    asked = server.to("POST", f"{ALLOCATIONS}/plan")[0].json
    assert asked["runtime_bundle_slug"] == "torch"
    assert (asked["lease"], asked["preemptible"]) == ({"max_duration_seconds": 7200}, True)
    server.on("POST", f"{ALLOCATIONS}/plan", Answer(200, {**plan, "fits": True, "realisations": ["gpu_slice"]}))
    assert gpuaas("plan", "--offer", "h100-1", "--runtime", "torch").out == "Fits, as gpu_slice, with torch:2.\n"


def test_an_operator_is_told_when_gpus_are_not_linked(gpuaas: Gpuaas, server: Playback) -> None:
    seat = {"node": "node-a", "realisation": "gpu_slice", "gpus": 3, "link_groups": 2, "numa_domains": 1}
    linked = {"node": "node-b", "realisation": "gpu_slice", "gpus": 4, "link_groups": 1, "numa_domains": 1}
    plan = {"fits": True, "realisations": ["gpu_slice"], "reasons": [], "seats": [seat, linked]}
    server.on("POST", f"{ALLOCATIONS}/plan", Answer(200, plan))
    said = gpuaas("plan", "--offer", "h100-3")
    assert said.code == 0
    assert "on node-a: 3 GPUs that are not all linked directly: of 2 groups, in one NUMA domain" in said.out
    assert "on node-b: 4 GPUs of one link group" in said.out
    server.on("POST", f"{ALLOCATIONS}/plan", Answer(200, {**plan, "seats": []}))
    assert gpuaas("plan", "--offer", "h100-3").out == "Fits, as gpu_slice.\n"


def test_ls(gpuaas: Gpuaas, server: Playback) -> None:
    found = samples.page(samples.allocation("a"), samples.allocation("b", "failed", endpoint=None))
    server.on("GET", ALLOCATIONS, Answer(200, found))
    server.on("GET", "/api/v1/projects", Answer(200, samples.page(samples.project("research"))))
    lines = gpuaas("ls").out.splitlines()
    assert lines[0].split() == ["NAME", "PROJECT", "STATE", "OFFER", "SSH", "AGE"]
    assert lines[2].split()[:5] == ["b", "research", "failed", "h100-1", "-"]
    assert gpuaas("ls", "--json").json == found
    server.on("GET", ALLOCATIONS, Answer(200, samples.page()))
    said = gpuaas("ls", "--all")
    assert (said.out, "gpuaas launch" in said.err) == ("", True)
    assert "all=true" in server.asked[-1].query


@pytest.mark.parametrize("verb", ["restart", "release"])
def test_what_interrupts_asks_first(gpuaas: Gpuaas, server: Playback, verb: str) -> None:
    changed = {"allocation": samples.allocation(), "operation": samples.operation(kind=verb)}
    server.on("GET", f"{ALLOCATIONS}/train-1", Answer(200, samples.allocation()))
    server.on("GET", MINE, Answer(200, samples.allocation()))
    server.on("POST", f"{MINE}/{verb}", Answer(202, changed))
    follows(server, samples.operation("succeeded", kind=verb))
    said = gpuaas(verb, "train-1", stdin="train-1\n")
    assert said.code == 2
    assert "--yes" in said.err
    assert server.to("POST", f"{MINE}/{verb}") == []
    assert at_terminal(gpuaas, verb, "train-1", typed="train-2\n") == 2
    assert server.to("POST", f"{MINE}/{verb}") == []
    assert at_terminal(gpuaas, verb, "train-1", typed="train-1\n") == 0
    assert gpuaas(verb, "train-1", "--yes").code == 0
    said = gpuaas(verb, "train-1", "--yes", "--json")
    assert said.json["operation"]["state"] == "succeeded"
    assert [asked.json for asked in server.to("POST", f"{MINE}/{verb}")] == [{"confirm": "train-1"}] * 3


@pytest.mark.parametrize("verb", ["restart", "release"])
def test_whose_sessions_are_interrupted_is_said_before(gpuaas: Gpuaas, server: Playback, verb: str) -> None:
    server.on("GET", f"{ALLOCATIONS}/train-1", Answer(200, samples.allocation()))
    here = [samples.session("s3"), samples.session("s2"), samples.session("s1", user=None, user_id=None)]
    gone = samples.session("s0", user="bob@example.org", closed_at=samples.LATER)
    server.on("GET", f"{MINE}/sessions", Answer(200, samples.page(*here, gone)))
    said = gpuaas(verb, "train-1").err
    assert "3 sessions are open there now: 2 of ada@example.org, 1 of somebody unknown." in said
    assert "bob" not in said
    server.on("GET", f"{MINE}/sessions", Answer(200, samples.page(gone)))
    assert "Nobody is logged in there now." in gpuaas(verb, "train-1").err
    server.on("GET", f"{MINE}/sessions", problem(403, "forbidden"))
    said = gpuaas(verb, "train-1")
    assert (said.code, "ends every session" in said.err) == (2, True)


def test_what_waits_for_its_node_says_so(gpuaas: Gpuaas, server: Playback) -> None:
    away = {"allocation": samples.allocation(state="unreachable"), "operation": samples.operation(kind="restart")}
    server.on("GET", f"{ALLOCATIONS}/train-1", Answer(200, samples.allocation(state="unreachable")))
    server.on("POST", f"{MINE}/restart", Answer(202, away))
    follows(server, samples.operation("succeeded", kind="restart"))
    said = gpuaas("restart", "train-1", "--yes")
    assert "The node of train-1 does not answer: this is done when it is back." in said.err
    assert said.code == 0


def test_a_failed_restart_offers_another(gpuaas: Gpuaas, server: Playback) -> None:
    changed = {"allocation": samples.allocation(), "operation": samples.operation(kind="restart")}
    server.on("GET", f"{ALLOCATIONS}/train-1", Answer(200, samples.allocation()))
    server.on("POST", f"{MINE}/restart", Answer(202, changed))
    follows(server, samples.operation("failed", kind="restart"))
    said = gpuaas("restart", "train-1", "--yes")
    assert said.code == 1
    assert "Try again with `gpuaas restart al-aaaaaaaaaaaaaaaa`, or give it back" in said.err


def at_terminal(gpuaas: Gpuaas, *arguments: str, typed: str) -> int:
    """The exit code with a person at a real terminal, who types something."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        gpuaas.command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=gpuaas.environment
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    while True:
        try:
            read = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        shown += read
    os.close(ours)
    assert b"Type train-1 to go on" in shown
    return process.wait(30)


def test_op_follow(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", "/api/v1/operations/op-aaaaaaaaaaaaaaaa", Answer(200, samples.operation()))
    follows(server, samples.operation(), samples.operation("superseded"))
    said = gpuaas("op", "follow", "op-aaaaaaaaaaaaaaaa")
    assert said.code == 1
    assert said.out.splitlines()[-1].endswith(": superseded")
    said = gpuaas("op", "follow", "op-aaaaaaaaaaaaaaaa", "--json")
    assert [json.loads(line)["state"] for line in said.out.splitlines()] == ["running", "superseded"]


def test_events_show_the_newest_and_follow(gpuaas: Gpuaas, server: Playback) -> None:
    found = samples.page(*[samples.event(n) for n in range(1, 8)])
    server.on("GET", "/api/v1/events", Answer(200, found))
    assert [item["seq"] for item in gpuaas("events", "--limit", "2", "--json").json["items"]] == [6, 7]
    assert gpuaas("events", "--after", "6").out.split()[0] == "7"
    frame = f"id: 8\nevent: x\ndata: {json.dumps(samples.event(8))}\n\n".encode()
    refused = problem(403, "forbidden")
    server.on("GET", "/api/v1/events/follow", Answer(chunks=(frame,)), refused)
    said = gpuaas("events", "--follow", "--json", "--after", "7")
    assert (said.code, json.loads(said.out)["seq"]) == (3, 8)


def test_a_private_key_never_leaves(gpuaas: Gpuaas, server: Playback) -> None:
    directory = gpuaas.home / ".ssh"
    directory.mkdir()
    server.on("POST", "/api/v1/keys", Answer(201, samples.key()))
    assert gpuaas("key", "add", "laptop").code == 2
    (directory / "id_ed25519").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    (directory / "id_rsa.pub").write_text("ssh-rsa AAAA old\n")
    (directory / "id_ed25519.pub").write_text("ssh-ed25519 AAAA me@home\n")
    assert gpuaas("key", "add", "laptop", "~/.ssh/id_ed25519").code == 2
    assert gpuaas("key", "add", "laptop", "-", stdin="ssh-rsa A\nssh-rsa B\n").code == 2
    assert server.asked == []
    assert gpuaas("key", "add", "laptop").code == 0
    assert gpuaas("key", "add", "laptop", "-", stdin="\nssh-rsa AAAA x\n").code == 0
    sent = [asked.json["public_key"] for asked in server.asked]
    assert sent == ["ssh-ed25519 AAAA me@home", "ssh-rsa AAAA x"]


def test_a_new_token_is_all_that_a_script_reads(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("POST", "/api/v1/tokens", Answer(201, samples.issued("gpt_ci")))
    said = gpuaas("token", "create", "ci", "--scope", "read", "--expires", "2h")
    assert said.out == "gpt_ci\n"
    assert server.asked[-1].json == {"name": "ci", "scopes": ["read"], "lifetime_seconds": 7200}


def leased(**more: Any) -> dict[str, Any]:
    lease = {"max_duration_seconds": 28800, "idle_seconds": None, "ends_at": None, "reason": None, "released_at": None}
    return samples.allocation(lease={**lease, **more.pop("lease", {})}, **more)


def soon(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes, seconds=30)).isoformat()


def test_a_lease_is_asked_for_and_shown(gpuaas: Gpuaas, server: Playback) -> None:
    machine = leased(lease={"ends_at": soon(10), "reason": "duration"})
    idle = leased(name="lazy", lease={"ends_at": soon(30), "reason": "idle"})
    over = leased(name="over", state="stopped", lease={"released_at": soon(20)})
    launched = {
        "allocations": [machine],
        "operations": [samples.operation("succeeded")],
        "queued": False,
        "reasons": [],
    }
    server.on("POST", "/api/v1/allocations", Answer(202, launched))
    server.on("GET", "/api/v1/allocations/al-aaaaaaaaaaaaaaaa", Answer(200, machine))
    server.on("GET", "/api/v1/allocations", Answer(200, samples.page(machine, idle, over)))
    said = gpuaas("launch", "train-1", "--offer", "h100-1", "--for", "8h", "--idle", "2h", "-p", "research", "-d")
    assert said.code == 0, said.err
    assert server.to("POST", "/api/v1/allocations")[0].json["lease"] == {
        "max_duration_seconds": 28800,
        "idle_seconds": 7200,
    }
    rows = gpuaas("ls", "-p", "research").out.splitlines()
    assert rows[0].endswith("ENDS")
    assert rows[1].endswith("stopped in 10m")
    assert rows[2].endswith("stopped in 30m if idle")
    assert rows[3].endswith("released in 20m")
    assert "gpuaas extend train-1 4h" in gpuaas("show", "al-aaaaaaaaaaaaaaaa").out


def test_extend_waits_for_a_machine_that_was_stopped(gpuaas: Gpuaas, server: Playback) -> None:
    path = "/api/v1/allocations/train-1/extend"
    running = leased(lease={"ends_at": soon(240), "reason": "duration"})
    server.on("POST", path, Answer(200, {"allocation": running, "operation": None}))
    said = gpuaas("extend", "train-1", "4h")
    assert (said.code, said.out.strip()) == (0, "train-1 is active, stopped in 4h.")
    assert server.to("POST", path)[0].json == {"seconds": 14400}
    stopped = {"allocation": leased(state="restarting"), "operation": samples.operation("failed", kind="restart")}
    server.on("POST", path, Answer(200, stopped))
    server.on("GET", "/api/v1/allocations/al-aaaaaaaaaaaaaaaa", Answer(200, leased(state="failed")))
    assert gpuaas("extend", "train-1", "4h").code == 1


def test_the_policy_of_a_project(gpuaas: Gpuaas, server: Playback) -> None:
    path = "/api/v1/projects/research/lease-policy"
    policy = {"project_id": "pj-1", "idle_seconds": 7200, "idle_gpu_percent": 5, "max_duration_seconds": None}
    server.on("GET", path, Answer(200, policy))
    server.on("PUT", path, Answer(200, {**policy, "max_duration_seconds": 86400}))
    assert "no session and GPUs below 5 % for 2h" in gpuaas("project", "lease", "research").out
    gpuaas("project", "lease", "research", "--idle", "2h", "--max", "1d")
    assert server.to("PUT", path)[0].json == {"idle_seconds": 7200, "max_duration_seconds": 86400}
    assert gpuaas("project", "lease", "research", "--none", "--max", "1d").code == 2


def test_a_preemptible_machine_says_so_and_when_it_has_to_go(gpuaas: Gpuaas, server: Playback) -> None:
    spot, firm = samples.allocation("spot", preemptible=True), samples.allocation("firm")
    server.on("GET", ALLOCATIONS, Answer(200, samples.page(spot, firm)))
    rows = gpuaas("ls", "-p", "research").out.splitlines()
    assert [row.endswith("preemptible") for row in rows] == [False, True, False]
    asked = {**spot, "preempted_at": soon(4)}
    server.on("GET", ALLOCATIONS, Answer(200, samples.page(asked, firm)))
    assert "preempted in 4m" in gpuaas("ls", "-p", "research").out
    server.on("GET", f"{ALLOCATIONS}/spot", Answer(200, asked))
    assert "it gives way: released in 4m" in gpuaas("show", "spot").out
    server.on("POST", ALLOCATIONS, launched())
    assert gpuaas("launch", "spot", "--offer", "h100-1", "--preemptible", "-d", "-p", "research").code == 0
    assert server.to("POST", ALLOCATIONS)[0].json["preemptible"] is True


def test_a_machine_on_a_drained_node_says_when_it_has_to_go(gpuaas: Gpuaas, server: Playback) -> None:
    drained = samples.allocation("train", drained_at=soon(90))
    server.on("GET", ALLOCATIONS, Answer(200, samples.page(drained, samples.allocation("firm"))))
    assert "drained in 90m" in gpuaas("ls", "-p", "research").out
    server.on("GET", f"{ALLOCATIONS}/train", Answer(200, drained))
    assert "its place is taken out of service: released in 90m" in gpuaas("show", "train").out


def test_strays(gpuaas: Gpuaas, server: Playback) -> None:
    id, all_ = "al-aaaaaaaaaaaaaaaa", "/api/v1/nodes/n1/strays"
    stray = {"id": id, "slots": ["gpu0", "gpu1"], "seen_at": "2030-01-01T00:00:00Z", "removed_at": None}
    server.on("GET", all_, Answer(200, samples.page(stray)))
    assert "gpu0, gpu1" in gpuaas("node", "strays", "n1").out
    said = gpuaas("node", "remove-stray", "n1", id)
    assert said.code == 2
    assert "deleted" in said.err
    server.on("POST", f"{all_}/{id}/remove", Answer(200, {**stray, "removed_at": "2030-01-01T00:00:01Z"}))
    said = gpuaas("node", "remove-stray", "n1", id, "--yes")
    assert said.out == f"n1 removes {id}.\n"
    assert server.asked[-1].json == {"confirm": id}


def test_how_a_slot_was_scrubbed(gpuaas: Gpuaas, server: Playback) -> None:
    said = [{"gpu": "GPU-1", "clean": True, "evidence": "reset by nvidia-smi in 2.1 s"}]
    last = {"at": "2030-01-01T00:00:00Z", "clean": True, "allocation_id": "al-aaaaaaaaaaaaaaaa", "gpus": said}
    shape = {"gpu_model": "H100", "cpus": 4, "memory_mib": 4096, "reason": "", "allocation_id": None}
    slot = {"id": "sl-aaaaaaaaaaaaaaaa", "name": "gpu0", "gpus": ["GPU-1"], "state": "approved", **shape}
    slot |= {"allowed_actions": [], "scrubbing": True, "last_scrub": last}
    node = {"id": "nd-aaaaaaaaaaaaaaaa", "name": "n1", "state": "ready", "org_id": None, "ready": True, "reason": ""}
    node |= {"address": "n1", "agent_version": "1", "gpus": 1, "last_seen_at": None, "slots": [slot]}
    server.on("GET", "/api/v1/nodes/n1", Answer(200, {**node, "created_at": "2030-01-01T00:00:00Z"}))
    shown = gpuaas("slot", "show", "n1", "gpu0").out
    assert "after al-aaaaaaaaaaaaaaaa" in shown
    assert "reset by nvidia-smi in 2.1 s" in shown
    assert "scrubbing" in shown
    assert "scrubbing" in gpuaas("slot", "ls", "n1").out
    assert json.loads(gpuaas("slot", "show", "n1", "gpu0", "--json").out)["last_scrub"]["clean"] is True
    unknown = gpuaas("slot", "show", "n1", "gpu9")
    assert unknown.code == 2
    assert "gpuaas slot ls n1" in unknown.err
