import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuaas.node.link import HEARTBEAT_SECONDS, SILENCE_SECONDS, Link
from gpuaas.node.outbox import PROGRESS_SECONDS, PROGRESS_SECONDS_EACH, RESEND_SECONDS
from gpuaas.wire.node import (
    MAX_REPORT_BYTES,
    Ack,
    Challenge,
    Dial,
    Fact,
    Fenced,
    FromAgent,
    Heartbeat,
    Hello,
    Holdings,
    Notice,
    Report,
    Spec,
    Specs,
    Welcome,
    encode,
    from_agent,
    from_server,
)
from node.samples import ID, NODE, OTHER_ID, OTHER_STORE, STORE, World, body, ids, key


class Pair:
    """A link on a world, with a hand-driven server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dialled: list[Dial] = []
        self.noticed: list[Notice] = []
        journal, handlers = world.runner.journal, (self.dialled.append, self.noticed.append)
        self.link = Link(world.runner, journal, lambda nonce: f"signed {nonce}", world.clock, "1.0", *handlers)

    def greet(self) -> Hello:
        self.link.connected()
        (hello,) = self.link.receive(Challenge("nonce"))
        assert isinstance(hello, Hello)
        return hello

    def open(self, *, acknowledge: bool = True) -> list[FromAgent]:
        self.greet()
        frames = self.link.receive(Welcome(STORE, 3, True, 10))
        return self.acknowledge(frames) if acknowledge else frames

    def acknowledge(self, frames: list[FromAgent], lease_seconds: int = 0) -> list[FromAgent]:
        """Acknowledges until there is nothing more to say; everything that was said."""
        said, todo = [], list(frames)
        while todo:
            frame = todo.pop(0)
            assert from_agent(encode(frame)) == frame
            said.append(frame)
            assert not isinstance(frame, Hello)
            todo += self.link.receive(Ack(frame.seq, lease_seconds if isinstance(frame, Heartbeat) else 0))
        return said


@pytest.fixture
def pair() -> Pair:
    return Pair(World())


numbers = st.integers(-1, 3) | st.integers(0, 2**53)
texts = (
    st.sampled_from([ID, OTHER_ID, STORE, "", "../..", ID + "\n", "gpu 0", "GPU-\x00", "ssh-ed25519 AAAA x"])
    | st.text()
)
bodies = st.fixed_dictionaries(
    {
        "name": texts,
        "org_id": st.just(ID),
        "project_id": st.just(ID),
        "slots": st.lists(st.fixed_dictionaries({"id": texts, "gpus": st.lists(texts, max_size=2)}), max_size=2),
        "cpus": numbers,
        "memory_mib": st.integers(16, 2**41),
        "seat": numbers,
        "ssh_port": st.integers(1, 65536),
        "uid_base": st.integers(65536, 2**32),
        "keys": st.lists(
            st.fixed_dictionaries(
                {"user_id": st.just(ID), "line": texts, "fingerprint": texts, "leased": st.booleans()}
            ),
            max_size=2,
        ),
    },
    optional={"image": texts, "restarts": numbers, "repairs": numbers},
)
specs = st.fixed_dictionaries(
    {"id": texts, "incarnation": numbers, "generation": numbers, "revision": numbers, "body": st.none() | bodies}
)
frames = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("specs"),
            "store_id": st.just(STORE),
            "base": st.just(0),
            "upto": numbers,
            "specs": st.lists(specs, max_size=3),
        }
    ),
    st.fixed_dictionaries({"type": st.just("ack"), "seq": numbers, "lease_seconds": numbers}),
    st.fixed_dictionaries({"type": st.just("challenge"), "nonce": texts}),
    st.fixed_dictionaries(
        {
            "type": st.just("welcome"),
            "store_id": texts,
            "epoch": numbers,
            "synced": st.booleans(),
            "lease_seconds": numbers,
        }
    ),
).map(encode)


def reports(frames: list[FromAgent]) -> list[Report]:
    return [frame for frame in frames if isinstance(frame, Report)]


def states(frames: list[FromAgent]) -> list[tuple[str, str]]:
    return [(condition.id, condition.state) for report in reports(frames) for condition in report.conditions]


def test_hello_answers_the_challenge(pair: Pair) -> None:
    hello = pair.greet()
    assert (hello.node_id, hello.signature) == (NODE, "signed nonce")
    assert (hello.store_id, hello.revision) == (STORE, 0)
    assert len(hello.inventory.gpus) == 8
    assert from_agent(encode(hello)) == hello


def test_a_synced_node_starts_with_a_heartbeat(pair: Pair) -> None:
    frames = pair.open(acknowledge=False)
    assert [type(frame) for frame in frames] == [Heartbeat]
    assert frames[0].epoch == 3  # type: ignore[union-attr]
    assert pair.link.poll() == []
    pair.world.clock.advance(HEARTBEAT_SECONDS)
    assert pair.link.due() == pair.world.clock.boottime()
    assert [type(frame) for frame in pair.link.poll()] == [Heartbeat]


def test_the_store_is_switched_only_after_the_last_holdings_arrived(pair: Pair) -> None:
    world = pair.world
    world.launch()
    journal = world.runner.journal
    for number in range(600):
        record = journal.record(ID)
        assert record is not None
        journal.put(replace(record, id=ids.new("al"), gone=True, told=journal.lineage, deaths=number))
    pair.greet()
    frames = pair.link.receive(Welcome(OTHER_STORE, 4, False, 10))
    held = []
    while frames and isinstance(frames[0], Holdings):
        (frame,) = frames
        assert isinstance(frame, Holdings)
        assert len(encode(frame)) <= MAX_REPORT_BYTES
        assert (journal.store_id, frame.store_id) == (STORE, OTHER_STORE)
        assert pair.link.receive(Ack(frame.seq + 100)) == []
        assert pair.link.receive(Specs(OTHER_STORE, 0, 9, [])) == []
        held += frame.objects
        final = frame.final
        frames = pair.link.receive(Ack(frame.seq))
    assert final
    assert len(held) == 601
    assert [holding.id for holding in held if not holding.gone] == [ID]
    assert (journal.store_id, journal.revision) == (OTHER_STORE, 0)
    assert isinstance(frames[0], Heartbeat)
    assert frames[0].store_id == OTHER_STORE


def test_holdings_are_sent_again_until_acknowledged(pair: Pair) -> None:
    pair.greet()
    (first,) = pair.link.receive(Welcome(OTHER_STORE, 4, False, 10))
    assert pair.link.poll() == []
    pair.world.clock.advance(RESEND_SECONDS)
    assert pair.link.poll() == [first]
    pair.link.disconnected()
    assert pair.world.runner.journal.store_id == STORE


def test_an_agent_that_died_before_the_last_word_says_it_all_again(pair: Pair) -> None:
    world = pair.world
    pair.greet()
    pair.link.receive(Welcome(OTHER_STORE, 4, False, 10))
    world.agent()
    assert Pair(world).greet().store_id == STORE


def test_a_server_that_mistakes_the_store_is_left(pair: Pair) -> None:
    pair.greet()
    assert pair.link.receive(Welcome(OTHER_STORE, 4, True, 10)) == []
    assert pair.link.broken


def test_fenced_means_connecting_again(pair: Pair) -> None:
    pair.open()
    pair.link.receive(Fenced("newer connection"))
    assert pair.link.broken
    assert pair.link.poll() == []
    pair.open()
    assert not pair.link.broken


def test_silence_breaks_the_link(pair: Pair) -> None:
    pair.open()
    pair.world.clock.advance(SILENCE_SECONDS)
    assert pair.link.poll() == []
    assert pair.link.broken


def test_specs_are_run_and_reported(pair: Pair) -> None:
    world = pair.world
    pair.open()
    pair.link.receive(Specs(STORE, 0, 1, [Spec(ID, 1, 1, 1, body(world.host))]))
    for id in world.runner.wanted():
        world.runner.converge(id)
    said = pair.acknowledge(pair.link.poll())
    assert states(said) == [(ID, "ready")]
    assert pair.link.poll() == []
    world.clock.advance(HEARTBEAT_SECONDS)
    (heartbeat,) = pair.link.poll()
    assert heartbeat.revision == 1  # type: ignore[union-attr]


def test_a_gap_is_asked_for_at_once(pair: Pair) -> None:
    pair.open()
    frames = pair.link.receive(Specs(STORE, 5, 6, []))
    assert [type(frame) for frame in frames] == [Heartbeat]


def test_conditions_are_sent_again_until_acknowledged_and_on_every_connection(pair: Pair) -> None:
    pair.world.launch()
    first = pair.open(acknowledge=False)
    assert states(first) == [(ID, "ready")]
    assert pair.link.poll() == []
    pair.world.clock.advance(RESEND_SECONDS)
    assert states(pair.link.poll()) == [(ID, "ready")]
    late = reports(first)[0]
    assert states(pair.link.receive(Ack(late.seq))) == []
    pair.world.clock.advance(RESEND_SECONDS)
    assert states(pair.link.poll()) == []
    assert states(pair.open()) == [(ID, "ready")]
    assert states(pair.open()) == [(ID, "ready")]


def watched_launch(pair: Pair, step_seconds: float) -> list[FromAgent]:
    """What is said before each step of a launch whose steps take so long, when nobody acknowledges anything."""
    seen: list[FromAgent] = []

    def look(point: str, id: str) -> None:
        if point.endswith(":before"):
            seen.extend(pair.link.poll())
            pair.world.clock.advance(step_seconds)

    pair.world.host.hook = look
    pair.world.launch()
    return seen


def test_a_quick_launch_is_told_with_one_word(pair: Pair) -> None:
    pair.open()
    assert states(watched_launch(pair, 0.01)) == []
    assert states(pair.link.poll()) == [(ID, "ready")]


def test_progress_waits_for_its_ack_and_a_verdict_does_not(pair: Pair) -> None:
    pair.open()
    assert states(watched_launch(pair, PROGRESS_SECONDS)) == [(ID, "converging")]
    assert states(pair.link.poll()) == [(ID, "ready")]


def test_progress_that_waits_is_due_without_any_event(pair: Pair) -> None:
    world = pair.world
    pair.open()
    world.host.fail("rootfs_ensure", times=1)
    world.want(ID, body(world.host))
    world.tell()
    world.runner.converge(ID)
    assert states(pair.link.poll()) == []
    assert pair.link.due() == world.clock.boottime() + PROGRESS_SECONDS
    world.clock.advance(PROGRESS_SECONDS)
    assert states(pair.link.poll()) == [(ID, "converging")]


def test_the_more_machines_are_on_their_way_the_longer_each_waits(pair: Pair) -> None:
    world = pair.world
    pair.open()
    ids = [f"al-{letter * 16}" for letter in "abcdefghij"]
    for number, id in enumerate(ids):
        world.want(id, body(world.host, number % 8))
    world.tell()
    for id in ids:
        world.host.fail("rootfs_ensure", times=1)
        world.runner.converge(id)
    pair.link.poll()
    world.clock.advance(PROGRESS_SECONDS)
    assert states(pair.link.poll()) == []
    world.clock.advance(PROGRESS_SECONDS_EACH * len(ids) - PROGRESS_SECONDS)
    assert sorted(states(pair.link.poll())) == [(id, "converging") for id in ids]


def test_gone_is_said_until_this_store_knows(pair: Pair) -> None:
    world = pair.world
    world.launch()
    world.want(ID, None)
    world.settle()
    assert states(pair.open(acknowledge=False)) == [(ID, "gone")]
    assert states(pair.open()) == [(ID, "gone")]
    assert states(pair.open()) == []
    world.agent()
    assert states(Pair(world).open()) == []


def test_facts_are_kept_until_acknowledged_and_counted_on(pair: Pair) -> None:
    world = pair.world
    world.launch()
    world.host.kill(ID)
    world.settle()
    pair.open(acknowledge=False)
    world.agent()
    again = Pair(world)
    said = again.open()
    assert [fact.sequence for report in reports(said) for fact in report.facts] == [1]
    assert world.runner.journal.facts() == []
    world.host.kill(ID)
    world.settle()
    said = again.acknowledge(again.link.poll())
    assert [fact.sequence for report in reports(said) for fact in report.facts] == [2]


def test_a_flood_of_facts_is_cut_into_frames_and_windows(pair: Pair) -> None:
    journal = pair.world.runner.journal
    for number in range(3000):
        journal._facts.queued.append(_fact(number + 1))
    first = pair.open(acknowledge=False)
    assert len(reports(first)) <= 16
    assert all(len(encode(frame)) <= MAX_REPORT_BYTES for frame in first)
    said = pair.acknowledge(first)
    assert sorted(fact.sequence for report in reports(said) for fact in report.facts) == list(range(1, 3001))
    assert journal.facts() == []


def test_a_report_that_is_too_large_loses_what_matters_least(pair: Pair) -> None:
    world = pair.world
    world.launch(gpus=8)
    world.host.fail("scrub", times=99, cause="x" * 20000)
    world.want(ID, None)
    world.settle()
    (report,) = reports(pair.open())
    assert len(encode(report)) <= MAX_REPORT_BYTES
    assert len(report.conditions[0].scrubs) == 8


def test_unknown_objects_are_reported_once_per_connection(pair: Pair) -> None:
    pair.world.host.rootfs_ensure(OTHER_ID, body(pair.world.host))
    said = pair.open()
    assert [holding.id for report in reports(said) for holding in report.unknown] == [OTHER_ID]
    pair.world.clock.advance(HEARTBEAT_SECONDS)
    assert [type(frame) for frame in pair.link.poll()] == [Heartbeat]


def test_a_change_of_inventory_is_reported(pair: Pair) -> None:
    pair.open()
    pair.world.host.missing.add(pair.world.host.gpu_uuids()[0])
    pair.world.clock.advance(HEARTBEAT_SECONDS)
    (report,) = reports(pair.link.poll())
    assert report.inventory is not None
    assert len(report.inventory.gpus) == 7


def test_the_lease_counts_from_when_the_heartbeat_was_sent(pair: Pair) -> None:
    world = pair.world
    lease = world.runner.lease
    (heartbeat,) = pair.open(acknowledge=False)
    assert not lease.held()
    world.clock.advance(2)
    pair.link.receive(Ack(heartbeat.seq, 10))  # type: ignore[union-attr]
    world.clock.advance(7.9)
    assert lease.held()
    world.clock.advance(0.1)
    assert not lease.held()
    pair.link.receive(Ack(heartbeat.seq, 1000))  # type: ignore[union-attr]
    assert not lease.held()


def test_an_ack_of_the_last_connection_renews_nothing(pair: Pair) -> None:
    (heartbeat,) = pair.open(acknowledge=False)
    pair.open(acknowledge=False)
    pair.link.receive(Ack(heartbeat.seq, 1000))  # type: ignore[union-attr]
    assert not pair.world.runner.lease.held()


def test_a_renewed_lease_lets_leased_keys_in(pair: Pair) -> None:
    world = pair.world
    world.launch(keys=[key(leased=True)])
    frames = pair.open(acknowledge=False)
    pair.acknowledge(frames, lease_seconds=10)
    assert world.runner.wanted() == [ID]


def test_frames_that_do_not_fit_the_state_do_no_harm(pair: Pair) -> None:
    world = pair.world
    spec = Spec(ID, 1, 1, 1, body(world.host))
    strays = [
        Challenge("again"),
        Welcome(OTHER_STORE, 9, False, 1),
        Ack(0),
        Ack(10**6),
        Specs(OTHER_STORE, 0, 1, [spec]),
    ]
    for stray in strays:
        assert pair.link.receive(stray) == []
    pair.link.connected()
    for stray in (*strays[1:], Specs(STORE, 0, 1, [spec])):
        assert pair.link.receive(stray) == []
    pair.open()
    for stray in strays:
        assert pair.link.receive(stray) == []
    assert (pair.link.state, pair.link.broken) == ("open", False)
    assert world.runner.journal.store_id == STORE
    assert world.runner.wanted() == []


def test_a_dial_is_handed_over_while_the_link_is_open(pair: Pair) -> None:
    dial = Dial(ID, "t" * 43, "", "192.0.2.7")
    assert pair.link.receive(dial) == []
    pair.greet()
    assert pair.link.receive(dial) == []
    assert pair.dialled == []
    pair.acknowledge(pair.link.receive(Welcome(STORE, 3, True, 10)))
    assert pair.link.receive(dial) == []
    assert pair.dialled == [dial]


def test_a_notice_is_handed_over_while_the_link_is_open(pair: Pair) -> None:
    notice = Notice(ID, "train-1 is stopped in 10 minutes")
    assert from_server(encode(notice)) == notice
    pair.greet()
    assert pair.link.receive(notice) == []
    assert pair.noticed == []
    pair.acknowledge(pair.link.receive(Welcome(STORE, 3, True, 10)))
    assert pair.link.receive(notice) == []
    assert pair.noticed == [notice]


@pytest.mark.parametrize("text", ["", "a\x1b[2J", "two\nlines", "x" * 501, "fin\n"])
def test_a_notice_steers_no_terminal(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        from_server(encode(Notice(ID, text)))


def test_a_disk_that_fails_breaks_the_connection_and_loses_nothing(pair: Pair) -> None:
    pair.greet()
    (holdings,) = pair.link.receive(Welcome(OTHER_STORE, 4, False, 10))
    pair.world.disk.fail("write")
    assert pair.link.receive(Ack(holdings.seq)) == []  # type: ignore[union-attr]
    assert pair.link.broken
    assert pair.world.runner.journal.store_id == STORE


def _fact(sequence: int) -> Fact:
    return Fact(sequence, "exited", ID, 1.0, {"text": "x" * 300})


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200) | frames)
def test_whatever_the_server_sends_is_decoded_and_survived_or_refused(data: bytes) -> None:
    pair = Pair(World())
    pair.open()
    try:
        frame = from_server(data)
    except msgspec.MsgspecError:
        return
    pair.acknowledge([f for f in pair.link.receive(frame) if not isinstance(f, Hello)])
    for id in pair.world.runner.wanted():
        pair.world.runner.converge(id)
    for sent in pair.link.poll():
        assert from_agent(encode(sent)) == sent
