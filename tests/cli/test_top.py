"""`gpuaas top` and `gpuaas health`."""

import os
import pty
import signal
import subprocess

from cli.conftest import Gpuaas
from sdk import samples
from sdk.playback import Answer, Playback

ALL = "/api/v1/allocation-health"
ONE = "/api/v1/allocations/train-1/health"


def test_top_shows_a_machine_a_line(gpuaas: Gpuaas, server: Playback) -> None:
    silent = samples.health("b", "unhealthy", use=None)
    waiting = samples.health("queued", "unknown", state="queued", use=None)
    server.on("GET", ALL, Answer(200, samples.page(silent, waiting, samples.health("a"))))
    said = gpuaas("top", "--once", "--project", "research")
    assert (said.code, said.err) == (0, "")
    head, first, second = said.out.splitlines()
    assert head.split("  ")[0] == "NAME"
    busy, cpu = "96%  40G/80G", "12%  3.0G/128G  293K/s  0B/s"
    assert " ".join(first.split()) == " ".join(f"a active {busy} {cpu} 2 healthy".split())
    assert second.split() == ["b", "active", *["-"] * 7, "unhealthy"]
    assert server.asked[0].query == "limit=200&project=research"
    assert gpuaas("top").out == said.out, "without a terminal it is shown once"
    assert [item["name"] for item in gpuaas("top", "--json").json["items"]] == ["a", "b"]


def test_top_says_when_there_is_nothing(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", ALL, Answer(200, samples.page()))
    said = gpuaas("top", "--once")
    assert (said.code, said.out) == (0, "")
    assert "No machine runs here" in said.err


def test_top_goes_on_on_a_terminal_until_interrupted(gpuaas: Gpuaas, server: Playback) -> None:
    pages = [Answer(200, samples.page(samples.health(name))) for name in ("first", "second")]
    server.on("GET", ALL, *pages)
    ours, theirs = pty.openpty()
    environment = {**gpuaas.environment, "TERM": "xterm"}
    process = subprocess.Popen(gpuaas.command("top"), env=environment, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    shown = b""
    while b"second" not in shown:
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    os.close(ours)
    assert b"first" in shown


def test_health_says_why_and_exits_with_it(gpuaas: Gpuaas, server: Playback) -> None:
    finding = {"code": "gpu_trouble", "level": "unhealthy", "message": "A GPU is not well. XID 79\x1b"}
    server.on("GET", ONE, Answer(200, samples.health(status="unhealthy", findings=[finding])))
    said = gpuaas("health", "train-1")
    assert said.code == 1
    assert "gpu_trouble" in said.out
    assert "XID 79\\x1b" in said.out
    assert gpuaas("health", "train-1", "--json").json["status"] == "unhealthy"
    server.on("GET", ONE, Answer(200, samples.health()))
    assert gpuaas("health", "train-1").code == 0
