"""The laws of the step table: fail anywhere, crash anywhere, run anything twice, take down anything; same result."""

from collections.abc import Callable

import pytest

from gpuaas.node.host.fake import Crash
from gpuaas.node.steps import STEPS, TEARDOWN
from node.samples import ID, OTHER_ID, World, body, key

ENSURE_VERBS = ["rootfs_ensure", "devices_ensure", "network_ensure", "access_ensure", "container_start"]
REMOVE_VERBS = [
    "runtimes_remove",
    "container_stop",
    "access_remove",
    "network_remove",
    "devices_remove",
    "rootfs_remove",
]
NAMES = [step.name for step in STEPS]

Change = Callable[[World], None]


def launch(world: World) -> None:
    world.want(ID, body(world.host, gpus=2))


def restart(world: World) -> None:
    world.want(ID, body(world.host, gpus=2, restarts=1))


def release(world: World) -> None:
    world.want(ID, None)


def before(change: Change) -> World:
    """A world in which `change` is the next thing to happen, next to a neighbour that must not notice."""
    world = World()
    world.launch(OTHER_ID, seat=3)
    if change is not launch:
        launch(world)
        world.settle()
    return world


def check(world: World, change: Change) -> None:
    condition = world.condition()
    present = {part.id: part.parts for part in world.host.present()}
    assert world.host.starts[OTHER_ID] == 1
    assert present[OTHER_ID] == {"rootfs", "devices", "network", "access", "container"}
    assert not world.host.state.leaks
    assert not world.runner.unknown()
    assert world.runner.journal.facts() == []
    if change is release:
        assert condition.state == "gone"
        assert ID not in present
        assert {scrub.gpu for scrub in condition.scrubs} == set(world.host.gpu_uuids()[:2])
        assert all(scrub.clean for scrub in condition.scrubs)
        assert set(world.host.memory.values()) == {OTHER_ID}
    else:
        machine = world.host.container(ID)
        assert condition.state == "ready"
        assert condition.host_key
        assert machine is not None
        assert machine.running
        assert machine.restarts == (1 if change is restart else 0)
        assert present[ID] == present[OTHER_ID]
        assert world.host.starts[ID] == (2 if change is restart else 1)


def run_until_crash(world: World, change: Change, stop_at: int) -> list[str]:
    """Carries out `change` and dies at the given point; the points passed until then."""
    points: list[str] = []

    def hook(point: str, id: str) -> None:
        points.append(f"{point} {id}")
        if len(points) == stop_at:
            raise Crash(point)

    change(world)
    world.host.hook = world.disk.hook = hook
    try:
        world.settle()
    except Crash:
        pass
    finally:
        world.host.hook = world.disk.hook = None
    return points


def count(change: Change) -> int:
    return len(run_until_crash(before(change), change, 0))


CRASHES = [
    pytest.param(change, point, id=f"{change.__name__}-{point}")
    for change in (launch, restart, release)
    for point in range(1, count(change) + 1)
]


def test_the_table_is_in_order() -> None:
    assert NAMES == ["stop", "rootfs", "devices", "network", "access", "container", "runtimes"]
    assert [step.name for step in TEARDOWN] == ["runtimes", "container", "access", "network", "devices", "rootfs"]
    for position, step in enumerate(TEARDOWN):
        assert set(step.needs) <= {earlier.name for earlier in TEARDOWN[:position]}


def test_there_are_crash_points_in_every_verb() -> None:
    passed = [run_until_crash(before(change), change, 0) for change in (launch, restart, release)]
    points = {point.split()[0] for each in passed for point in each}
    for verb in (*ENSURE_VERBS, *REMOVE_VERBS, "write"):
        assert {f"{verb}:before", f"{verb}:after"} <= points


@pytest.mark.parametrize(("change", "point"), CRASHES)
def test_a_crash_at_any_point_ends_in_the_same_state(change: Change, point: int) -> None:
    world = before(change)
    passed = run_until_crash(world, change, point)
    assert len(passed) == point
    world.agent()
    world.settle()
    check(world, change)


@pytest.mark.parametrize(("change", "point"), CRASHES)
def test_a_crash_and_a_reboot_end_in_the_same_state(change: Change, point: int) -> None:
    world = before(change)
    run_until_crash(world, change, point)
    world.host.reboot()
    world.agent()
    world.settle()
    present = {part.id for part in world.host.present()}
    assert present == ({OTHER_ID} if change is release else {ID, OTHER_ID})
    assert world.condition().state == ("gone" if change is release else "ready")
    assert world.condition(OTHER_ID).state == "ready"
    assert not world.host.state.leaks


@pytest.mark.parametrize("point", range(1, count(launch) + 1))
def test_a_release_wins_over_a_launch_that_crashed_anywhere(point: int) -> None:
    world = before(launch)
    run_until_crash(world, launch, point)
    world.agent()
    release(world)
    world.settle()
    assert world.condition().state == "gone"
    assert {part.id for part in world.host.present()} == {OTHER_ID}


@pytest.mark.parametrize("verb", ENSURE_VERBS)
@pytest.mark.parametrize("part", ["before", "after"])
def test_every_step_fails_and_heals(verb: str, part: str) -> None:
    world = before(launch)
    world.host.fail(f"{verb}:{part}", times=2, id=ID)
    launch(world)
    world.settle()
    check(world, launch)


@pytest.mark.parametrize("verb", ENSURE_VERBS)
def test_every_step_fails_for_good_and_release_leaves_nothing(verb: str) -> None:
    world = before(launch)
    world.host.fail(verb, times=99, id=ID)
    launch(world)
    world.settle()
    condition = world.condition()
    name = "container" if verb == "container_start" else verb.removesuffix("_ensure")
    assert condition.state == "failed"
    assert condition.failure is not None
    assert condition.failure.code == f"{name}_failed"
    assert "injected" in condition.failure.detail
    assert "injected" not in condition.failure.message
    assert [step.state for step in condition.steps if step.name == name] == ["failed"]
    world.host.heal()
    release(world)
    world.settle()
    check(world, release)


@pytest.mark.parametrize("verb", REMOVE_VERBS)
def test_teardown_gives_every_step_its_chance(verb: str) -> None:
    world = before(release)
    world.host.fail(verb, id=ID)
    world.host.log.clear()
    release(world)
    world.tell()
    world.runner.converge(ID)
    tried = [done for done, id in world.host.log if id == ID]
    # What needs a stopped container is not touched while it may still run.
    needing = {"devices_remove", "rootfs_remove"} if verb == "container_stop" else set()
    assert tried == [each for each in REMOVE_VERBS if each not in needing]
    condition = world.condition()
    assert condition.state == "converging"
    assert any(step.state == "failed" and step.message for step in condition.steps)
    world.settle()
    check(world, release)


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_every_step_twice_equals_once(step: object) -> None:
    world = World()
    wanted = body(world.host)
    for each in STEPS:
        each.ensure(world.host, ID, wanted)
        if each is step:
            once = repr(world.host.state)
            each.ensure(world.host, ID, wanted)
            assert repr(world.host.state) == once
    whole = repr(world.host.state)
    for each in STEPS:
        each.ensure(world.host, ID, wanted)
    assert repr(world.host.state) == whole


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_remove_twice_and_remove_first_are_safe(step: object) -> None:
    world = World()
    for each in TEARDOWN:
        each.remove(world.host, ID, world.host.gpu_uuids()[:1])
    assert world.host.present() == []
    for each in STEPS:
        each.ensure(world.host, ID, body(world.host))
    for each in TEARDOWN:
        each.remove(world.host, ID, world.host.gpu_uuids()[:1])
        if each is step:
            each.remove(world.host, ID, world.host.gpu_uuids()[:1])
    assert world.host.present() == []
    assert world.host.memory == {}


def test_a_restart_resets_the_gpus_once_and_keeps_what_must_stay() -> None:
    world = before(restart)
    host_key, port = world.condition().host_key, world.host.state.ports[ID]
    world.host.log.clear()
    restart(world)
    world.settle()
    done = [verb for verb, id in world.host.log if id == ID]
    assert done.count("reset") == 1
    assert done.index("container_stop") < done.index("reset") < done.index("container_start")
    assert (world.condition().host_key, world.host.state.ports[ID]) == (host_key, port)


def test_a_change_of_keys_does_not_touch_the_container() -> None:
    world = before(restart)
    world.host.log.clear()
    world.want(ID, body(world.host, gpus=2, keys=[key("SHA256:two")]))
    world.settle()
    assert world.condition().state == "ready"
    assert not {"container_stop", "container_start", "reset"} & {verb for verb, id in world.host.log if id == ID}
    assert [k.fingerprint for k in world.host.state.keys[ID]] == ["SHA256:two"]
