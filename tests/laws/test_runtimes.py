"""The laws of a machine's runtimes: crash anywhere, fail anywhere; `current` never dangles, the machine is ready."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpuaas.node.board import Trouble
from gpuaas.node.host.fake import Crash
from gpuaas.node.retry import LONGEST_DELAY_SECONDS
from gpuaas.node.steps.runtimes import TRIES
from gpuaas.node.upkeep import Upkeep, keep_up
from gpuaas.wire.node import RuntimeReport, RuntimeSpec
from node.samples import ID, STORE, World, body, key

OLD, NEW = "a" * 64, "b" * 64
ONE = RuntimeSpec("tool", "1.0", OLD, 1000)
BOTH = [RuntimeSpec("tool", "1.0", OLD, 1000, current=False), RuntimeSpec("tool", "2.0", NEW, 1000)]
BACK = [ONE, RuntimeSpec("tool", "2.0", NEW, 1000, current=False)]

Change = Callable[[World], None]


def want(world: World, *runtimes: RuntimeSpec, restarts: int = 0) -> None:
    world.want(ID, body(world.host, restarts=restarts, runtimes=list(runtimes)))


def apply(world: World) -> None:
    want(world, ONE)


def upgrade(world: World) -> None:
    want(world, *BOTH)


def roll_back(world: World) -> None:
    want(world, *BACK)


def restart(world: World) -> None:
    want(world, *BOTH, restarts=1)


def remove(world: World) -> None:
    want(world)


BEFORE: dict[Change, list[Change]] = {
    apply: [],
    upgrade: [apply],
    roll_back: [apply, upgrade],
    restart: [apply, upgrade],
    remove: [apply, upgrade],
}
AFTER = {
    apply: {"tool/1.0": True},
    upgrade: {"tool/1.0": False, "tool/2.0": True},
    roll_back: {"tool/1.0": True, "tool/2.0": False},
    restart: {"tool/1.0": False, "tool/2.0": True},
    remove: {},
}


def before(change: Change) -> World:
    world = World()
    world.host.state.images |= {OLD: 1000, NEW: 1000}
    want(world)
    world.settle()
    for each in BEFORE[change]:
        each(world)
        world.settle()
    return world


def shown(world: World) -> dict[str, bool]:
    """Every version that the machine sees, and whether it is current."""
    links = world.host.state.links.get(ID, {})
    current = {f"{bundle}/{version}" for bundle, version in links.items()}
    view = set(world.host.state.views.get(ID, {}))
    assert current <= view, "current dangles"
    return {each: each in current for each in view}


def pass_time(world: World, seconds: float) -> None:
    """With an agent at work, which looks once a second."""
    for _ in range(int(seconds)):
        world.clock.advance(1)
        world.settle()


def told(world: World) -> dict[str, bool]:
    condition = world.condition()
    assert condition.state == "ready"
    assert {each.state for each in condition.runtimes} <= {"ready"}
    return {f"{each.bundle}/{each.version}": each.current for each in condition.runtimes}


def points(world: World, change: Change, stop_at: int) -> list[str]:
    passed: list[str] = []

    def hook(point: str, id: str) -> None:
        passed.append(point)
        shown(world)
        if len(passed) == stop_at:
            raise Crash(point)

    change(world)
    world.host.hook = hook
    try:
        world.settle()
    except Crash:
        pass
    finally:
        world.host.hook = None
    return passed


CRASHES = [
    pytest.param(change, point, id=f"{change.__name__}-{point}")
    for change in BEFORE
    for point in range(1, len(points(before(change), change, 0)) + 1)
]


@pytest.mark.parametrize("change", BEFORE, ids=lambda change: change.__name__)
def test_every_change_ends_as_it_was_asked_for_without_a_restart(change: Change) -> None:
    world = before(change)
    starts = world.host.starts[ID]
    assert "runtimes_ensure:shown" in points(world, change, 0)
    assert shown(world) == told(world) == AFTER[change]
    assert world.host.starts[ID] == starts + (change is restart)


@pytest.mark.parametrize("change", [each for each in BEFORE if each is not restart], ids=lambda each: each.__name__)
def test_a_change_of_runtimes_alone_asks_for_nothing_else(change: Change) -> None:
    world = before(change)
    host_key = world.condition().host_key
    passed = points(world, change, 0)
    assert {point.partition(":")[0] for point in passed} == {"runtimes_ensure"}
    assert world.condition().host_key == host_key != ""
    assert {step.state for step in world.condition().steps} == {"done"}


def _another_agent(world: World) -> None:
    world.agent()


def _a_death(world: World) -> None:
    world.host.kill(ID)


def _a_death_that_nobody_saw(world: World) -> None:
    """The next server counts from elsewhere, so what was applied is not known to be of its making."""
    world.runner.journal.synced(STORE)
    world.specs[ID] = replace(world.specs[ID], generation=0)
    world.host.kill(ID)


def _a_failure(world: World) -> None:
    """Of a pass for other keys, of which nothing may be thought to be done."""
    world.host.fail("access_ensure", times=1)
    world.want(ID, body(world.host, keys=[key("SHA256:two")]))
    world.tell()
    world.runner.converge(ID)
    assert world.condition().state == "converging"


@pytest.mark.parametrize("doubt", [_another_agent, _a_death, _a_death_that_nobody_saw, _a_failure])
def test_after_any_doubt_everything_is_looked_at(doubt: Change) -> None:
    world = before(apply)
    doubt(world)
    apply(world)
    world.tell()
    passed: set[str] = set()
    world.host.hook = lambda point, id: passed.add(point.partition(":")[0])
    world.runner.converge(ID)
    assert {"access_ensure", "network_ensure", "runtimes_ensure"} <= passed
    assert shown(world) == told(world) == AFTER[apply]
    assert world.host.state.containers[ID].running


@pytest.mark.parametrize(("change", "point"), CRASHES)
@pytest.mark.parametrize("reboot", [False, True])
def test_a_crash_at_any_point_ends_the_same(change: Change, point: int, reboot: bool) -> None:
    world = before(change)
    points(world, change, point)
    if reboot:
        world.host.reboot()
    world.agent()
    world.settle()
    assert shown(world) == told(world) == AFTER[change]


@pytest.mark.parametrize("times", [1, 99])
@pytest.mark.parametrize("part", ["before", "shown", "after"])
def test_whatever_fails_the_machine_is_ready(part: str, times: int) -> None:
    world = before(upgrade)
    world.host.fail(f"runtimes_ensure:{part}", times=times, transient=False)
    upgrade(world)
    world.settle()
    condition = world.condition()
    assert condition.state == "ready"
    assert {each.state for each in condition.runtimes} == ({"ready"} if times == 1 else {"failed"})
    assert all(each.code == "runtimes_failed" and each.message for each in condition.runtimes if times > 1)
    world.host.heal()
    pass_time(world, LONGEST_DELAY_SECONDS)
    assert shown(world) == told(world) == AFTER[upgrade]
    apply(world)  # what a server does as well: the version before is wanted again
    world.settle()
    assert shown(world) == told(world) == AFTER[apply]


@pytest.mark.parametrize("part", ["before", "shown", "after", "image"])
def test_what_fails_after_a_reboot_comes_back_by_itself(part: str) -> None:
    """Nobody asks for it again. It is tried less and less often, and told as failed until it is ready."""
    world = before(remove)
    world.host.reboot()
    world.host.unusable |= {OLD, NEW} if part == "image" else set()
    world.host.fail(f"runtimes_ensure:{part}", times=9999)
    world.agent()
    world.settle()
    assert world.host.state.containers[ID].running
    world.host.log.clear()
    pass_time(world, 3600)
    assert world.condition().state == "ready"
    assert {each.state for each in world.condition().runtimes} == {"failed"}
    assert {verb for verb, _ in world.host.log} == {"runtimes_ensure"}
    assert 50 < len(world.host.log) / (1 if part == "image" else TRIES) < 80
    world.host.heal()
    world.host.unusable.clear()
    pass_time(world, LONGEST_DELAY_SECONDS)
    assert shown(world) == told(world) == AFTER[upgrade]
    world.host.log.clear()
    pass_time(world, 3600)
    assert world.host.log == []


def test_what_could_not_be_taken_away_goes_later() -> None:
    """It was the last one: nothing is told of it any more, and nobody would ask again."""
    world = before(remove)
    world.host.fail("runtimes_ensure", times=TRIES)
    remove(world)
    world.settle()
    assert world.condition().runtimes == []
    assert shown(world) == AFTER[upgrade]
    pass_time(world, LONGEST_DELAY_SECONDS)
    assert shown(world) == told(world) == AFTER[remove]


def _no_place(world: World) -> None:
    world.host.state.containers[ID].has_view = False


def _not_coming(world: World) -> None:
    del world.host.state.images[NEW]
    world.runner.fetched(NEW, [ID], Trouble("no_room", "The disk is full.", final=True))


@pytest.mark.parametrize("trouble", [_no_place, _not_coming])
def test_what_trying_again_does_not_heal_is_left_alone(trouble: Change) -> None:
    world = before(upgrade)
    trouble(world)
    upgrade(world)
    world.settle()
    assert "failed" in {each.state for each in world.condition().runtimes}
    world.host.log.clear()
    pass_time(world, 3600)
    assert world.host.log == []


def test_an_image_that_is_on_its_way_changes_nothing_else() -> None:
    world = before(upgrade)
    del world.host.state.images[NEW]
    upgrade(world)
    world.settle()
    assert [(each.version, each.state, each.current) for each in world.condition().runtimes] == [
        ("1.0", "ready", True),
        ("2.0", "fetching", False),
    ]
    assert shown(world) == AFTER[apply]
    (missing,) = world.runner.missing()
    assert (missing.digest, missing.size, missing.ids) == (NEW, 1000, (ID,))
    world.host.log.clear()
    world.host.state.images[NEW] = 1000
    world.runner.fetched(NEW, [ID])
    assert world.runner.wanted() == [ID]
    world.settle()
    assert shown(world) == told(world) == AFTER[upgrade]
    assert {verb for verb, _ in world.host.log} == {"runtimes_ensure"}  # and nothing else of the machine was touched
    assert world.runner.missing() == []


def test_trouble_with_an_image_is_told_until_it_is_over() -> None:
    world = before(upgrade)
    del world.host.state.images[NEW]
    upgrade(world)
    world.settle()
    for final, state in ((False, "fetching"), (True, "failed")):
        world.runner.fetched(NEW, [ID], Trouble("no_room", "The disk is full.", final))
        world.settle()
        assert world.condition().runtimes[1] == RuntimeReport(
            "tool", "2.0", state, code="no_room", message="The disk is full."
        )
    apply(world)
    world.settle()
    assert world.runner.missing() == []
    world.host.state.images[NEW] = 1000
    upgrade(world)
    world.settle()
    assert told(world) == AFTER[upgrade]


def test_a_machine_that_an_older_agent_started_says_what_to_do() -> None:
    world = before(apply)
    world.host.state.containers[ID].has_view = False
    apply(world)
    world.settle()
    (report,) = world.condition().runtimes
    assert (report.state, report.code) == ("failed", "no_place")
    assert "Restart it first" in report.message
    want(world, ONE, restarts=1)
    world.settle()
    assert told(world) == AFTER[apply]


@pytest.mark.parametrize(
    "bad",
    [
        [ONE, ONE],
        [ONE, RuntimeSpec("tool", "2.0", NEW, 1000)],
        [RuntimeSpec("tool", "current", OLD, 1000)],
        [RuntimeSpec("../tool", "1.0", OLD, 1000)],
        [RuntimeSpec("tool", "../1.0", OLD, 1000)],
        [RuntimeSpec("tool", "1.0", "../" + "a" * 61, 1000)],
    ],
)
def test_what_cannot_be_a_view_is_refused(bad: list[RuntimeSpec]) -> None:
    world = World()
    want(world, *bad)
    world.settle()
    condition = world.condition()
    assert (condition.state, condition.failure and condition.failure.code) == ("failed", "bad_spec")


# upkeep


def test_an_image_goes_when_nobody_has_wanted_it_for_long() -> None:
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock)
    world.clock.advance(10 * upkeep.unused_seconds)
    assert upkeep.tidy() == []
    apply(world)
    world.settle()
    assert upkeep.tidy() == []
    world.clock.advance(upkeep.unused_seconds / 2)
    assert upkeep.tidy() == []
    world.clock.advance(upkeep.unused_seconds / 2)
    assert upkeep.tidy() == [NEW]
    assert set(world.host.images()) == {OLD}
    assert told(world) == AFTER[apply]
    remove(world)
    world.settle()
    assert upkeep.tidy() == []
    assert upkeep.make_room() == [OLD]


def test_while_the_disk_is_low_what_nobody_wants_goes_at_once() -> None:
    """And with it what has arrived of images that nobody wants any more. What a machine should have stays."""
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock)
    apply(world)
    world.settle()
    abandoned = "e" * 64
    world.host.image_append(abandoned, 0, b"half")
    assert upkeep.tidy() == []
    assert world.host.image_begin(abandoned, 8) == 4, "it may be wanted again"
    world.host.disk_low = True
    assert upkeep.tidy() == [NEW]
    assert world.host.image_begin(abandoned, 8) == 0
    assert set(world.host.images()) == {OLD}
    assert told(world) == AFTER[apply]
    assert upkeep.tidy() == []


@pytest.mark.parametrize("low", [False, True])
def test_what_is_asked_for_while_others_are_thrown_away_stays(low: bool) -> None:
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock, unused_seconds=0)
    remove(world)
    world.settle()
    coming = RuntimeSpec("other", "1.0", "c" * 64, 8)
    world.host.image_append(coming.digest, 0, b"half")

    def ask(point: str, id: str) -> None:
        world.host.hook = None
        want(world, *BOTH[1:], coming)
        world.tell()

    world.host.hook, world.host.disk_low = ask, low
    assert upkeep.tidy() == [OLD]
    assert set(world.host.images()) == {NEW}
    assert world.host.image_begin(coming.digest, 8) == 4


def test_who_runs_a_version_keeps_it_and_its_image() -> None:
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock, unused_seconds=0)
    world.host.run_from.add((ID, "tool/2.0"))
    remove(world)
    world.settle()
    assert shown(world) == {"tool/2.0": False}
    assert upkeep.tidy() == [OLD]
    world.settle()
    assert shown(world) == {"tool/2.0": False}
    world.host.run_from.clear()
    world.runner.look_again([ID])
    world.settle()
    assert shown(world) == {}
    assert upkeep.tidy() == [NEW]


def test_a_damaged_image_is_found_told_and_fetched_again() -> None:
    world = before(remove)
    world.host.clock = lambda: world.clock.now().timestamp()
    upkeep = Upkeep(world.runner, world.clock)
    assert [upkeep.scrub(), upkeep.scrub(), upkeep.scrub()] == [None, None, None]
    world.host.damaged.add(NEW)
    assert upkeep.scrub() is None  # it was read just now
    world.clock.advance(upkeep.scrub_seconds + 1)
    assert {upkeep.scrub(), upkeep.scrub()} == {None, NEW}
    world.settle()
    assert [(each.version, each.state, each.current) for each in world.condition().runtimes] == [
        ("1.0", "ready", False),
        ("2.0", "fetching", True),
    ]
    assert world.condition().runtimes[1].code == "image_damaged"
    (missing,) = world.runner.missing()
    assert missing.digest == NEW
    world.host.state.images[NEW] = 1000
    world.runner.fetched(NEW, missing.ids)
    world.settle()
    assert told(world) == AFTER[upgrade]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_repair_reads_the_images_before_it_says_that_they_are_well(damaged: bool) -> None:
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock)
    assert upkeep.read_again() == []
    if damaged:
        world.host.damaged.add(NEW)
    world.want(ID, body(world.host, runtimes=BOTH, repairs=1))
    world.settle()
    assert {(each.state, each.code) for each in world.condition().runtimes} == {("fetching", "reading")}
    world.agent()  # dies before it has read anything: the next one does
    world.settle()
    upkeep = Upkeep(world.runner, world.clock)
    assert upkeep.read_again() == ([NEW] if damaged else [])
    world.settle()
    if damaged:
        states = [(each.state, each.code, each.current) for each in world.condition().runtimes]
        assert states == [("ready", "", False), ("fetching", "image_damaged", True)]
        world.host.state.images[NEW] = 1000
        world.runner.fetched(NEW, [ID])
        world.settle()
    assert told(world) == AFTER[upgrade]
    assert upkeep.read_again() == []
    world.agent()
    world.settle()
    assert told(world) == AFTER[upgrade]


@pytest.mark.parametrize("damaged", [False, True])
def test_an_image_whose_file_has_changed_is_shown_to_nobody_before_it_was_read(damaged: bool) -> None:
    world = before(upgrade)
    upkeep = Upkeep(world.runner, world.clock)
    world.host.touched.add(NEW)
    if damaged:
        world.host.damaged.add(NEW)
    upgrade(world)
    world.settle()
    states = [(each.state, each.code, each.current) for each in world.condition().runtimes]
    assert states == [("ready", "", True), ("fetching", "reading", False)]
    assert world.condition().runtimes[1].message == "Its image is being read again."
    assert shown(world) == AFTER[apply]
    assert upkeep.read_again() == ([NEW] if damaged else [])
    world.settle()
    if damaged:
        states = [(each.state, each.code, each.current) for each in world.condition().runtimes]
        assert states == [("ready", "", True), ("fetching", "image_damaged", False)]
        assert shown(world) == AFTER[apply]
        (missing,) = world.runner.missing()
        world.host.state.images[NEW] = 1000
        world.runner.fetched(NEW, missing.ids)
        world.settle()
    assert shown(world) == told(world) == AFTER[upgrade]
    assert upkeep.read_again() == []


def test_whoever_reads_an_image_those_who_wait_for_it_hear_of_it() -> None:
    world = before(upgrade)
    upkeep = Upkeep(world.runner, world.clock)
    world.host.touched.add(NEW)
    upgrade(world)
    world.settle()
    assert world.condition().runtimes[1].code == "reading"
    assert upkeep.read_behind() is None
    world.settle()
    assert shown(world) == told(world) == AFTER[upgrade]


def test_what_nobody_waits_for_is_left_when_somebody_waits() -> None:
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock)
    assert upkeep._may_go_slowly()
    world.host.touched.add(NEW)
    assert not upkeep._may_go_slowly()
    assert upkeep.read_again() == []
    assert upkeep._may_go_slowly()
    world.want(ID, body(world.host, runtimes=BOTH, repairs=1))
    world.settle()
    assert not upkeep._may_go_slowly()


def test_the_upkeep_ends_with_the_agent() -> None:
    world = before(remove)
    upkeep = Upkeep(world.runner, world.clock)
    passed = threading.Event()

    def look(point: str, id: str) -> None:
        if point == "image_check:after":
            passed.set()

    async def work() -> None:
        worker = asyncio.create_task(keep_up(upkeep, every_seconds=0.01, tidy_seconds=0))
        assert await asyncio.to_thread(passed.wait, 30)
        worker.cancel()
        await asyncio.wait([worker])

    world.host.hook = look
    asyncio.run(work())
    assert upkeep.stopped.is_set()


def test_images_that_cannot_be_read_do_not_keep_others_from_being_thrown_away() -> None:
    """As on a disk that is full, where that is what helps."""
    world = before(remove)
    remove(world)
    world.settle()
    upkeep = Upkeep(world.runner, world.clock, unused_seconds=0)
    world.host.touched.add(NEW)
    world.host.fail("image_check", times=9999)
    tidied = threading.Event()

    def look(point: str, id: str) -> None:
        if point == "images_tidy:before":
            tidied.set()

    async def work() -> None:
        worker = asyncio.create_task(keep_up(upkeep, every_seconds=0.01, tidy_seconds=0))
        assert await asyncio.to_thread(tidied.wait, 20)
        worker.cancel()
        await asyncio.wait([worker])

    world.host.hook = look
    asyncio.run(work())


def test_what_is_read_slowly_holds_up_nothing() -> None:
    """While an image is read that nobody waits for, others are thrown away and read for those who wait."""
    world = before(remove)
    remove(world)
    world.settle()
    upkeep = Upkeep(world.runner, world.clock, unused_seconds=0)
    reading, tidied = threading.Event(), threading.Event()

    def look(point: str, id: str) -> None:
        if point == "image_check:before" and not reading.is_set():
            reading.set()
            assert tidied.wait(30)
        elif point == "images_tidy:before":
            assert reading.wait(30)
            tidied.set()

    async def work() -> None:
        worker = asyncio.create_task(keep_up(upkeep, every_seconds=0.01, tidy_seconds=0))
        assert await asyncio.to_thread(tidied.wait, 20)
        worker.cancel()
        await asyncio.wait([worker])

    world.host.hook = look
    asyncio.run(work())
