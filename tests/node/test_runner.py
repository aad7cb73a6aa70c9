from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuaas.kit.errors import HostError
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.interface import Present
from gpuaas.wire.node import RuntimeSpec, Spec, Specs
from node.samples import ID, OTHER_ID, OTHER_STORE, STORE, World, body, key

RUNTIME = RuntimeSpec("tool", "1.0", "0" * 64, 100)


@pytest.fixture
def world() -> World:
    return World()


def spec(world: World, generation: int = 1, incarnation: int = 1, **more: object) -> Spec:
    return Spec(ID, incarnation, generation, 1, body(world.host, **more))


def send(world: World, *specs: Spec, store: str = STORE, base: int = 0, upto: int = 1) -> None:
    world.runner.receive(Specs(store, base, upto, list(specs)))


# what is taken from the server


def test_specs_of_another_store_are_ignored(world: World) -> None:
    send(world, spec(world), store=OTHER_STORE)
    assert world.runner.wanted() == []
    assert world.runner.journal.revision == 0


def test_a_gap_is_ignored_and_an_overlap_is_not(world: World) -> None:
    send(world, spec(world), base=1, upto=2)
    assert world.runner.journal.revision == 0
    send(world, spec(world), base=0, upto=5)
    assert world.runner.journal.revision == 5
    send(world, spec(world, generation=2), base=3, upto=4)
    assert world.runner.journal.revision == 5
    record = world.runner.journal.record(ID)
    assert record is not None
    assert record.version == (1, 2)


@pytest.mark.parametrize(("incarnation", "generation"), [(1, 2), (1, 1), (0, 9)])
def test_old_news_is_dropped(world: World, incarnation: int, generation: int) -> None:
    send(world, spec(world, generation=2))
    send(world, Spec(ID, incarnation, generation, 1, None))
    record = world.runner.journal.record(ID)
    assert record is not None
    assert record.spec is not None
    assert record.spec.body is not None


def test_a_revision_is_not_passed_when_the_disk_is_full(world: World) -> None:
    world.disk.fail("write", cause="no space left on device")
    send(world, spec(world))
    assert world.runner.journal.revision == 0
    send(world, spec(world))
    assert world.runner.journal.revision == 1
    assert world.runner.wanted() == [ID]


def test_another_lineage_is_a_new_baseline_even_with_smaller_numbers(world: World) -> None:
    world.want(ID, body(world.host), generation=9)
    world.settle()
    world.runner.journal.synced(OTHER_STORE)
    send(world, spec(world, generation=3, keys=[key("SHA256:two")]), store=OTHER_STORE)
    world.runner.converge(ID)
    assert (world.condition().generation, world.condition().state) == (3, "ready")
    assert world.host.starts[ID] == 1
    send(world, spec(world, generation=2), store=OTHER_STORE)
    assert world.condition().generation == 3


def test_a_resync_with_the_same_store_is_a_new_baseline_too(world: World) -> None:
    world.want(ID, body(world.host), generation=9)
    world.settle()
    world.runner.journal.synced(STORE)
    send(world, spec(world, generation=4))
    assert world.runner.journal.record(ID).version == (1, 4)  # type: ignore[union-attr]


def test_what_is_gone_never_comes_back_at_the_same_incarnation(world: World) -> None:
    world.launch()
    world.want(ID, None, generation=5)
    world.settle()
    world.runner.journal.synced(OTHER_STORE)
    for generation in (3, 8):
        send(world, spec(world, generation=generation), store=OTHER_STORE)
        assert world.runner.wanted() == []
        condition = world.condition()
        assert (condition.state, condition.generation) == ("gone", generation)
        assert all(scrub.clean for scrub in condition.scrubs)
        assert condition.scrubs
    send(world, spec(world, incarnation=2), store=OTHER_STORE)
    world.runner.converge(ID)
    assert world.condition().state == "ready"


def test_a_tombstone_for_the_unseen_is_carried_out(world: World) -> None:
    world.want(ID, None)
    world.settle()
    assert world.condition().state == "gone"
    assert world.condition().scrubs == []


def test_a_tombstone_before_the_first_pass_still_gives_evidence(world: World) -> None:
    send(world, spec(world))
    send(world, Spec(ID, 1, 2, 2, None), base=1, upto=2)
    world.runner.converge(ID)
    assert [scrub.clean for scrub in world.condition().scrubs] == [True]
    assert world.host.starts == {}


def test_gone_is_reported_until_told_and_again_when_asked(world: World) -> None:
    world.launch()
    world.want(ID, None)
    world.settle()
    world.agent()
    world.runner.told(world.condition())
    assert world.runner.conditions() == []
    world.agent()
    assert world.runner.conditions() == []
    send(world, world.specs[ID], base=0)
    assert world.condition().state == "gone"


# bad specs


@pytest.mark.parametrize(
    "change",
    [
        {"image": "base/../../etc"},
        {"ssh_port": 22},
        {"keys": [replace(key(), line='command="sh" ssh-ed25519 AAAA x')]},
        {"keys": [replace(key(), line="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5\n")]},
        {"name": "two\nlines"},
        {"uid_base": 0},
        {"cpus": "many"},
        {"memory_mib": None},
        {"slots": [object()]},
        {"name": "x" * 300_000},
    ],
)
def test_a_bad_spec_is_refused_and_what_runs_is_left_alone(world: World, change: dict[str, object]) -> None:
    world.launch()
    world.want(ID, replace(body(world.host), **change))
    world.settle()
    assert (world.condition().state, world.condition().generation) == ("failed", 2)
    assert world.condition().failure.code == "bad_spec"  # type: ignore[union-attr]
    assert world.host.container(ID).running  # type: ignore[union-attr]
    world.agent()
    assert world.condition().failure.code == "bad_spec"  # type: ignore[union-attr]
    assert world.runner.journal.bad == {}
    world.want(ID, None)
    world.settle()
    assert world.condition().state == "gone"


def test_the_same_gpu_twice_is_refused(world: World) -> None:
    slot = body(world.host).slots[0]
    world.want(ID, body(world.host, slots=[slot, slot]))
    world.settle()
    assert world.condition().failure.code == "bad_spec"  # type: ignore[union-attr]


@pytest.mark.parametrize("id", ["../../etc/passwd", "al-short", f"{ID}\n", "", 7])
def test_a_spec_without_a_proper_name_is_dropped(world: World, id: str) -> None:
    send(world, Spec(id, 1, 1, 1, body(world.host)))
    assert world.runner.journal.live() == []
    assert world.runner.journal.revision == 1


# failures


def test_a_transient_failure_is_tried_three_times_with_growing_pauses(world: World) -> None:
    world.host.fail("network_ensure", times=99)
    send(world, spec(world))
    states = []
    for pause in (0.5, 1.0, None):
        assert world.runner.wanted() == [ID]
        world.runner.converge(ID)
        states.append(world.condition().state)
        assert world.runner.wanted() == []
        if pause is not None:
            world.clock.advance(pause - 0.01)
            assert world.runner.wanted() == []
            world.clock.advance(0.02)
    assert states == ["converging", "converging", "failed"]
    world.clock.advance(3600)
    assert world.runner.wanted() == []


def test_a_lasting_failure_is_final_at_once(world: World) -> None:
    world.host.fail("container_start", transient=False, cause="no such image")
    world.launch()
    assert world.condition().state == "failed"
    assert world.host.log.count(("container_start", ID)) == 1


def test_a_poisoned_generation_is_not_tried_again_by_a_new_agent_or_after_a_reboot(world: World) -> None:
    world.host.fail("devices_ensure", transient=False)
    world.launch()
    world.host.reboot()
    world.agent()
    world.settle()
    assert world.condition().failure.code == "devices_failed"  # type: ignore[union-attr]
    assert ID not in world.host.starts
    world.want(ID, body(world.host))
    world.settle()
    assert world.condition().state == "ready"


def test_another_runtime_for_a_machine_that_is_ready_takes_one_write(world: World) -> None:
    world.launch()
    written: list[str] = []
    world.disk.hook = lambda at, name: written.append(name) if at == "write:before" else None
    world.want(ID, body(world.host, runtimes=[RUNTIME]))
    world.tell()
    world.runner.converge(ID)
    assert (world.condition().state, world.condition().generation) == ("ready", 2)
    assert written == [f"{ID}.json"]


def test_a_machine_that_was_ready_is_not_given_up_for_another_runtime(world: World) -> None:
    """The agent dies before it has looked; all of the machine is looked at again, and something fails at first."""
    world.launch()
    world.want(ID, body(world.host, runtimes=[RUNTIME]))
    world.tell()
    world.host.fail("network_ensure", times=20)
    world.agent()
    world.settle()
    assert (world.condition().state, world.condition().generation) == ("ready", 2)


def test_a_machine_that_was_never_ready_is_not_taken_for_good_with_another_runtime(world: World) -> None:
    world.host.fail("network_ensure", transient=False)
    world.want(ID, body(world.host))
    world.tell()
    world.want(ID, body(world.host, runtimes=[RUNTIME]))
    world.settle()
    assert (world.condition().state, world.condition().generation) == ("failed", 2)


def test_what_was_good_once_is_tried_for_ever_and_heals(world: World) -> None:
    world.launch()
    world.host.kill(ID)
    world.host.fail("container_start", times=20)
    states = set()
    longest = 0.0
    for _ in range(20):
        world.runner.observe()
        world.runner.converge(ID)
        states.add(world.condition().state)
        due = world.runner.due()
        assert due is not None
        longest = max(longest, due - world.clock.boottime())
        world.clock.advance(due - world.clock.boottime())
    assert states == {"converging", "failed"}
    assert longest == 60
    world.settle()
    assert world.condition().state == "ready"
    assert world.host.starts[ID] == 2


def test_a_bug_in_the_host_is_a_failure_of_its_step(world: World) -> None:
    def bug(point: str, id: str) -> None:
        if point == "rootfs_ensure:before":
            raise ZeroDivisionError("oops")

    world.host.hook = bug
    world.launch()
    assert world.condition().failure.code == "rootfs_failed"  # type: ignore[union-attr]
    world.host.hook = None
    world.want(ID, None)
    world.settle()
    assert world.condition().state == "gone"


def test_a_full_disk_never_stops_the_agent(world: World) -> None:
    send(world, spec(world))
    world.disk.fail("write", times=20, cause="no space left on device")
    for _ in range(12):
        world.runner.observe()
        for id in world.runner.wanted():
            world.runner.converge(id)
        world.clock.advance(30)
    world.disk.heal()
    world.settle()
    assert world.condition().state == "ready"
    assert world.host.starts[ID] == 1


def test_a_pass_ends_early_when_a_newer_spec_arrives(world: World) -> None:
    def release(point: str, id: str) -> None:
        if point == "devices_ensure:after":
            world.host.hook = None
            send(world, Spec(ID, 1, 2, 2, None), base=1, upto=2)

    send(world, spec(world))
    world.host.hook = release
    world.runner.converge(ID)
    assert ("network_ensure", ID) not in world.host.log
    world.runner.converge(ID)
    assert world.condition().state == "gone"
    assert world.host.present() == []


def test_a_result_of_an_old_pass_does_not_count(world: World) -> None:
    def newer(point: str, id: str) -> None:
        if point == "container_start:after":
            world.host.hook = None
            send(world, spec(world, generation=2), base=1, upto=2)

    send(world, spec(world))
    world.host.hook = newer
    world.runner.converge(ID)
    assert all(condition.state != "ready" for condition in world.runner.conditions())
    assert world.runner.wanted() == [ID]
    world.settle()
    assert world.condition().generation == 2
    assert world.host.starts[ID] == 1


def test_a_failed_scrub_is_told(world: World) -> None:
    world.launch()
    world.host.fail("scrub", cause="read back 0x41")
    world.want(ID, None)
    world.settle()
    world.agent()
    assert [(scrub.clean, scrub.evidence) for scrub in world.condition().scrubs] == [(False, "read back 0x41")]


def test_resources_in_use_are_refused_until_they_are_free(world: World) -> None:
    world.launch(OTHER_ID)
    world.want(ID, body(world.host))  # same port, ids and GPU
    world.tell()
    world.runner.converge(ID)
    assert world.condition().state == "converging"
    world.want(ID, None)
    world.settle()
    assert [scrub.clean for scrub in world.condition().scrubs] == [False]
    assert world.host.memory == {world.host.gpu_uuids()[0]: OTHER_ID}
    assert world.host.container(OTHER_ID).running  # type: ignore[union-attr]


# what happens on the host by itself


def test_a_death_is_one_fact_and_is_healed(world: World) -> None:
    world.launch()
    for death in (1, 2):
        world.host.kill(ID)
        world.runner.observe()
        world.runner.observe()
        world.agent()
        world.runner.observe()
        assert [fact.data["death"] for fact in world.runner.journal.facts()] == [str(n + 1) for n in range(death)]
        world.settle()
        assert world.condition().state == "ready"
    assert world.host.starts[ID] == 3
    assert {fact.data["reason"] for fact in world.runner.journal.facts()} == {"died"}


def test_how_it_died_is_told_if_anybody_saw_it(world: World) -> None:
    world.launch()
    world.host.kill(ID, "its first process was killed by signal 9 (SIGKILL)")
    world.settle()
    world.host.kill(ID)
    world.settle()
    told = [fact.data.get("ended") for fact in world.runner.journal.facts()]
    assert told == ["its first process was killed by signal 9 (SIGKILL)", None]


def test_a_death_while_the_agent_was_away_is_still_a_fact(world: World) -> None:
    world.launch()
    world.host.kill(ID)
    world.agent()
    world.runner.converge(ID)
    assert [fact.kind for fact in world.runner.journal.facts()] == ["exited"]


def test_a_reboot_brings_everything_back_without_the_server(world: World) -> None:
    host_key = world.launch().host_key
    world.host.reboot()
    world.agent()
    world.runner.observe()
    assert [fact.data["reason"] for fact in world.runner.journal.facts()] == ["reboot"]
    for id in world.runner.wanted():
        world.runner.converge(id)
    assert world.condition().state == "ready"
    assert world.condition().host_key == host_key
    assert world.host.starts[ID] == 2


def test_a_reboot_under_a_machine_that_was_down_anyway_is_told_once(world: World) -> None:
    """It ends sessions, and the machine's own end is no news: a restart was wanted."""
    world.launch()
    world.launch(OTHER_ID, seat=1)
    world.want(ID, body(world.host, restarts=1))
    world.tell()
    world.host.reboot()
    for _ in range(2):
        world.agent()
        world.settle()
    facts = [(fact.object_id, fact.kind) for fact in world.runner.journal.facts()]
    assert facts == [(ID, "rebooted"), (OTHER_ID, "exited")]
    assert world.condition().state == "ready"


def test_a_full_disk_at_start_does_not_hide_a_reboot_for_ever(world: World) -> None:
    world.host.fail("devices_ensure", transient=False)
    world.launch()
    world.host.reboot()
    world.disk.fail("write")
    world.agent()
    assert world.runner.journal.facts() == []
    world.agent()
    assert [fact.kind for fact in world.runner.journal.facts()] == ["rebooted"]


def test_a_restart_on_purpose_is_no_death(world: World) -> None:
    world.launch()

    def look(point: str, id: str) -> None:
        if point == "container_start:before":
            world.runner.observe()

    world.host.hook = look
    world.want(ID, body(world.host, restarts=1))
    world.settle()
    assert world.runner.journal.facts() == []
    # It was stopped, the restart failed, and the generation before it is wanted again.
    world.host.hook = None
    world.host.fail("container_start", transient=False)
    world.want(ID, body(world.host, restarts=2))
    world.settle()
    world.want(ID, body(world.host, restarts=1))
    world.settle()
    assert world.condition().state == "ready"
    assert world.runner.journal.facts() == []


def test_a_new_agent_adopts_what_runs(world: World) -> None:
    world.launch()
    world.agent()
    assert world.runner.wanted() == [ID]
    world.settle()
    assert world.condition().state == "ready"
    assert world.host.starts[ID] == 1
    assert world.host.log.count(("container_stop", ID)) == 0


def test_another_boot_config_starts_the_machine_anew(world: World) -> None:
    world.launch()
    world.want(ID, body(world.host, memory_mib=4096))
    world.settle()
    assert world.host.starts[ID] == 2
    assert world.runner.journal.facts() == []


def test_unknown_objects_are_reported_and_kept(world: World) -> None:
    world.launch()
    world.disk.files.clear()
    world.specs.clear()
    world.agent(new=True)
    world.settle()
    assert [holding.id for holding in world.runner.unknown()] == [ID]
    assert world.host.container(ID).running  # type: ignore[union-attr]


class Busy(FakeHost):
    """A host on which something happens while it is looked at."""

    meanwhile: Callable[[], None] | None = None

    def present(self) -> list[Present]:
        before, act = super().present(), self.meanwhile
        self.meanwhile = None
        if act is not None:
            act()
        return [*before, *super().present()]


def test_what_comes_or_goes_while_the_host_is_looked_at_is_not_unknown(world: World) -> None:
    world.host = Busy()
    world.agent()
    for wanted in (body(world.host), None):
        world.want(ID, wanted)
        world.host.meanwhile = world.settle
        assert world.runner.unknown() == []
        assert world.host.meanwhile is None
    assert world.condition().state == "gone"


def test_holdings_tell_what_was_seen_and_what_is_gone(world: World) -> None:
    world.launch()
    world.launch(OTHER_ID, seat=1, restarts=4)
    world.want(ID, None)
    world.settle()
    held = {holding.id: holding for holding in world.runner.holdings()}
    assert held[ID].gone
    assert (held[OTHER_ID].restarts, held[OTHER_ID].generation, held[OTHER_ID].gone) == (4, 1, False)
    assert held[OTHER_ID].slots == [slot.id for slot in body(world.host, seat=1).slots]


# the lease


def test_leased_keys_get_in_only_while_the_lease_is_held(world: World) -> None:
    def fingerprints() -> list[str]:
        return [each.fingerprint for each in world.host.state.keys[ID]]

    world.launch(keys=[key("SHA256:own"), key("SHA256:lent", leased=True)])
    assert fingerprints() == ["SHA256:own"]
    world.runner.lease.renew(world.clock.boottime(), 10)
    assert world.runner.wanted() == [ID]
    world.runner.converge(ID)
    assert fingerprints() == ["SHA256:own", "SHA256:lent"]
    assert world.host.login(ID, "SHA256:lent")
    assert world.runner.wanted() == []
    assert world.runner.due() == world.clock.boottime() + 10
    world.clock.advance(10)
    world.settle()
    assert fingerprints() == ["SHA256:own"]
    assert ID not in world.host.state.sessions
    assert world.host.starts[ID] == 1


def test_a_lease_that_comes_back_wakes_whoever_lets_keys_in_and_one_that_goes_on_wakes_nobody(world: World) -> None:
    woken: list[float] = []
    world.runner.on_change(lambda: woken.append(world.clock.boottime()), lambda: None)
    world.runner.renew(world.clock.boottime(), 10)
    assert len(woken) == 1
    world.clock.advance(9)
    world.runner.renew(world.clock.boottime(), 10)
    assert len(woken) == 1
    world.clock.advance(10)
    world.runner.renew(world.clock.boottime() - 20, 10)  # an answer that came too late to be of use
    assert len(woken) == 1
    world.runner.renew(world.clock.boottime(), 10)
    assert len(woken) == 2


@pytest.mark.parametrize("transient", [True, False])
def test_a_lease_ends_even_when_the_generation_has_failed(world: World, transient: bool) -> None:
    lent = [key("SHA256:own"), key("SHA256:lent", leased=True)]
    world.runner.lease.renew(world.clock.boottime(), 100)
    send(world, spec(world, keys=lent))
    world.runner.converge(ID)
    world.host.fail("network_ensure", times=1000, transient=transient)
    send(world, spec(world, generation=2, keys=lent, name="other"), base=1, upto=2)
    for _ in range(5):
        world.runner.converge(ID)
    assert world.condition().state == "failed"
    world.clock.advance(100)
    for id in world.runner.wanted():
        world.runner.converge(id)
    assert [each.fingerprint for each in world.host.state.keys[ID]] == ["SHA256:own"]
    assert world.runner.wanted() == []


def test_a_revoked_key_stops_working_even_when_another_step_fails(world: World) -> None:
    world.launch(keys=[key("SHA256:one"), key("SHA256:two")])
    world.host.fail("rootfs_ensure", times=99)
    world.want(ID, body(world.host, keys=[key("SHA256:one")]))
    world.settle()
    assert world.condition().state == "failed"
    assert [each.fingerprint for each in world.host.state.keys[ID]] == ["SHA256:one"]


# whatever the server says

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("name", "slots", "cpus", "memory_mib", "seat", "ssh_port", "uid_base", "keys", "image", "restarts", "repairs")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    id=st.sampled_from([ID, OTHER_ID]) | anything,
    numbers=st.tuples(st.integers(-1, 3) | anything, st.integers(-1, 3) | anything),
    changes=st.none() | st.dictionaries(st.sampled_from(FIELDS), anything, max_size=3),
)
def test_no_spec_makes_the_agent_fall(id: object, numbers: tuple[object, object], changes: object) -> None:
    world = World()
    world.launch()
    made = replace(body(world.host), **changes) if isinstance(changes, dict) else None
    world.runner.receive(Specs(STORE, 1, 2, [Spec(id, *numbers, 2, made)]))  # type: ignore[arg-type]
    world.settle()
    assert world.agent().journal.bad == {}
    world.settle()


def test_host_errors_while_looking_are_survived(world: World) -> None:
    class Blind:
        def container(self, id: str) -> None:
            raise HostError("container", id, "no answer")

        def news(self) -> None:
            raise HostError("news", "", "no answer")

    world.launch()
    host, world.runner.host = world.host, Blind()  # type: ignore[assignment]
    world.runner.observe()
    world.runner.host = host
    world.settle()
    assert world.condition().state == "ready"


# a machine that is kept and does not run


def test_a_stopped_machine_is_kept_is_no_death_and_comes_back(world: World) -> None:
    world.launch()
    world.host.login(ID, "SHA256:one")
    world.want(ID, body(world.host, stopped=True))
    world.settle()
    assert world.condition().state == "ready"
    machine = world.host.container(ID)
    assert machine is None or not machine.running
    assert {"rootfs", "devices", "network", "access"} <= world.host.state.parts(ID)
    world.agent()
    world.settle()
    world.host.reboot()
    world.agent()
    world.settle()
    assert world.host.starts[ID] == 1
    kinds = [fact.kind for fact in world.runner.journal.facts()]
    assert "exited" not in kinds
    world.want(ID, body(world.host, restarts=1))
    world.settle()
    assert world.host.container(ID).running  # type: ignore[union-attr]
    assert world.host.starts[ID] == 2


def test_a_machine_that_died_before_it_was_stopped_stays_down(world: World) -> None:
    world.launch()
    world.host.kill(ID)
    world.want(ID, body(world.host, stopped=True))
    world.settle()
    assert world.condition().state == "ready"
    assert world.host.starts[ID] == 1


def test_the_gpus_of_a_tombstone_without_a_machine_are_scrubbed() -> None:
    """An operator gives a slot back whose last scrub had failed."""
    world = World()
    world.launch()
    gpu = world.host.gpu_uuids()[0]
    world.host.fail("scrub")
    world.want(ID, None)
    world.settle()
    assert [scrub.clean for scrub in world.condition().scrubs] == [False]
    scrub = "sc-" + "a" * 16
    world.specs[scrub] = replace(world.want(scrub, None), gpus=[gpu])
    world.tell()
    (holding,) = [each for each in world.runner.holdings() if each.id == scrub]
    assert (holding.gone, holding.gpus) == (False, [gpu]), "a restored database sets its slot aside"
    world.agent()  # the agent dies before it has begun
    world.settle()
    first = world.condition(scrub)
    assert [(each.gpu, each.clean) for each in first.scrubs] == [(gpu, True)]
    world.runner.told(first)
    world.specs[scrub] = replace(world.want(scrub, None), gpus=[gpu])
    world.settle()
    again = world.condition(scrub)
    assert (again.generation, again.scrubs) == (first.generation + 1, first.scrubs), "asked again, it says so again"
    assert world.launch(OTHER_ID).state == "ready"
