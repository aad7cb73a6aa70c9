"""What machines use, on its way to the link."""

from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.sampling import samples
from gpuaas.wire.node import MAX_REPORT_BYTES, FromAgent, GpuSample, Sample, Samples, Spec, encode, from_agent
from node.samples import ID, OTHER_ID, World, body
from node.test_link import Pair
from node.test_main import Process, TinyServer, joined, scenario


def said(frames: list[FromAgent]) -> list[Samples]:
    return [frame for frame in frames if isinstance(frame, Samples)]


class Broken(FakeHost):
    def sample(self, id: str) -> Sample | None:
        if id == ID:
            raise HostError("sample", id, "its cgroup cannot be read")
        return super().sample(id)


def test_only_what_runs_is_sampled() -> None:
    world = World()
    assert samples(world.runner) == []
    world.launch()
    world.launch(OTHER_ID, seat=1)
    assert sorted(sample.id for sample in samples(world.runner)) == sorted([ID, OTHER_ID])
    world.host.kill(ID)
    assert [sample.id for sample in samples(world.runner)] == [OTHER_ID]
    world.want(OTHER_ID, None)
    world.settle()
    assert OTHER_ID not in [sample.id for sample in samples(world.runner)]


def test_one_that_cannot_be_read_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.host = Broken()
    world.agent()
    world.launch()
    world.launch(OTHER_ID, seat=1)
    assert [sample.id for sample in samples(world.runner)] == [OTHER_ID]
    assert "its cgroup cannot be read" in caplog.text


def test_totals_of_the_fake_grow_and_begin_again_with_a_restart() -> None:
    world = World()
    now = 1000.0
    world.host.clock = lambda: now
    world.launch()
    now += 10
    (first,) = samples(world.runner)
    now += 10
    (second,) = samples(world.runner)
    assert second.cpu_seconds > first.cpu_seconds > 0
    assert second.started_at == first.started_at
    world.launch(restarts=1)
    (third,) = samples(world.runner)
    assert third.started_at > second.started_at
    assert third.cpu_seconds == 0


def test_samples_are_sent_once_while_the_link_is_open() -> None:
    world = World()
    world.launch()
    pair = Pair(world)
    pair.link.sampled(samples(world.runner))
    pair.open()
    assert said(pair.link.poll()) == [], "sampled before it was open"
    pair.link.sampled(samples(world.runner))
    (frame,) = said(pair.link.poll())
    assert (frame.epoch, [sample.id for sample in frame.samples]) == (3, [ID])
    assert said(pair.link.poll()) == []
    pair.link.sampled(samples(world.runner))
    pair.link.disconnected()
    pair.open()
    assert said(pair.link.poll()) == [], "of the connection before"


def test_frames_stay_below_the_limit() -> None:
    world = World()
    world.launch()
    trouble = GpuSample("GPU-x", trouble="\x07" * 2000)
    world.host.use[ID] = {"gpus": [trouble] * 30}
    (one,) = samples(world.runner)
    pair = Pair(world)
    pair.open()
    pair.link.sampled([one] * 100)
    frames = said(pair.link.poll())
    assert sum(len(frame.samples) for frame in frames) == 100
    assert all(len(encode(frame)) <= MAX_REPORT_BYTES and from_agent(encode(frame)) == frame for frame in frames)
    world.host.use[ID] = {"gpus": [trouble] * 256}
    (one,) = samples(world.runner)
    assert one.gpus == []


def test_the_agent_sends_samples_by_itself(tmp_path: Path) -> None:
    async def play(server: TinyServer) -> None:
        joined(tmp_path)
        host = FakeHost()
        agent = Process(server, tmp_path, host, sample_seconds=0.05)
        await server.until(lambda: bool(server.sockets))
        await server.want(Spec(ID, 1, 1, 1, body(host)))
        await server.until(lambda: len(server.samples) >= 2)
        assert {sample.id for sample in server.samples} == {ID}
        await agent.end()

    scenario(play)
