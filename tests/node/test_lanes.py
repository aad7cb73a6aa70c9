"""Lanes: one after the other, or side by side."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuaas.node.lanes import in_turn, side_by_side
from gpuaas.node.runner import Runner
from node.samples import ID, World


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def test_whoever_stops_asking_leaves_the_rest_undone() -> None:
    done: list[int] = []
    answers = in_turn([lambda: done.append(1), lambda: done.append(2)])
    next(answers)
    assert done == [1]


def test_side_by_side_they_meet(pool: ThreadPoolExecutor) -> None:
    together = threading.Barrier(2, timeout=10)
    assert len(list(side_by_side(pool)([together.wait, together.wait]))) == 2


def test_answers_are_in_order_and_all_have_ended(pool: ThreadPoolExecutor) -> None:
    first_done = threading.Event()

    def second() -> str:
        assert first_done.wait(10)
        return "second"

    def first() -> str:
        first_done.set()
        return "first"

    assert list(side_by_side(pool)([first, second])) == ["first", "second"]
    assert list(side_by_side(pool)([lambda: "alone"])) == ["alone"]


def test_a_machine_is_made_side_by_side_too(pool: ThreadPoolExecutor) -> None:
    world = World()
    world.runner = Runner(world.host, world.runner.journal, world.clock, side_by_side(pool))
    assert world.launch().state == "ready"
    assert {step.state for step in world.condition().steps} == {"done"}


@pytest.mark.parametrize("verb", ["rootfs_ensure", "devices_ensure", "network_ensure"])
def test_a_failure_in_any_lane_is_the_machines(pool: ThreadPoolExecutor, verb: str) -> None:
    world = World()
    world.runner = Runner(world.host, world.runner.journal, world.clock, side_by_side(pool))
    world.host.fail(verb, transient=False)
    condition = world.launch()
    assert condition.state == "failed"
    assert condition.failure is not None
    assert condition.failure.code == f"{verb.removesuffix('_ensure')}_failed"
    assert world.host.container(ID) is None
