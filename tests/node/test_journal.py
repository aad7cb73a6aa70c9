import contextlib
import random

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import Ids
from gpuaas.node.host.fake import Crash, FakeDisk
from gpuaas.node.journal import FACTS, HEAD, Journal
from gpuaas.node.journal import NODE as NODE_FILE
from gpuaas.node.record import Record
from node.samples import ID, NODE, OTHER_ID, STORE, World


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def journal(disk: FakeDisk, seed: int = 1) -> Journal:
    return Journal(disk, Ids(random.Random(seed)))


def test_what_was_written_is_there_again(disk: FakeDisk) -> None:
    first = journal(disk)
    first.joined(NODE)
    first.synced(STORE)
    first.advance(7)
    first.keep_revision()
    first.put(Record(ID, first.lineage))
    first.add_fact("exited", ID, 1.0, {"death": "1"})
    again = journal(disk, seed=2)
    assert (again.incarnation, again.node_id, again.store_id, again.revision, again.lineage) == (
        first.incarnation,
        NODE,
        STORE,
        7,
        first.lineage,
    )
    assert again.live() == first.live()
    assert again.facts() == first.facts()


def test_a_revision_never_goes_back_but_a_sync_starts_anew(disk: FakeDisk) -> None:
    book = journal(disk)
    book.synced(STORE)
    lineage = book.lineage
    book.advance(7)
    book.advance(3)
    assert book.revision == 7
    book.synced(STORE)
    assert book.revision == 0
    assert book.lineage != lineage


def test_sequence_numbers_are_never_used_again(disk: FakeDisk) -> None:
    book = journal(disk)
    book.add_fact("exited", ID, 1.0, {"death": "1"})
    book.add_fact("exited", ID, 1.0, {"death": "1"})
    book.add_fact("exited", ID, 2.0, {"death": "2"})
    assert [fact.sequence for fact in book.facts()] == [1, 2]
    book.acknowledge({1, 2, 99})
    again = journal(disk)
    again.add_fact("exited", ID, 3.0, {"death": "3"})
    assert [fact.sequence for fact in again.facts()] == [3]


def test_nothing_is_believed_before_it_is_on_disk(disk: FakeDisk) -> None:
    book = journal(disk)
    book.synced(STORE)
    disk.fail("write", times=3)
    with pytest.raises(HostError):
        book.put(Record(ID, "x"))
    with pytest.raises(HostError):
        book.add_fact("exited", ID, 1.0, {})
    with pytest.raises(HostError):
        book.synced(STORE)
    assert (book.live(), book.facts()) == ([], [])


def test_a_revision_that_a_crash_forgets_is_only_asked_for_again(disk: FakeDisk) -> None:
    book = journal(disk)
    book.synced(STORE)
    book.advance(5)
    book.keep_revision()
    book.advance(9)
    assert (book.revision, journal(disk).revision) == (9, 5)
    disk.fail("write", times=1)
    with pytest.raises(HostError):
        book.keep_revision()
    book.keep_revision()
    assert journal(disk).revision == 9


@pytest.mark.parametrize("garbage", [b"", b"\0" * 4096, b"{", b'{"id": 7}', b"\xff\xfe", b"[" * 100_000, b"null"])
@pytest.mark.parametrize("name", [HEAD, FACTS, f"{ID}.json"])
def test_a_torn_file_is_set_aside_and_learnt_again(name: str, garbage: bytes) -> None:
    world = World()
    world.launch()
    world.launch(OTHER_ID, seat=1)
    world.host.kill(OTHER_ID)
    world.settle()
    incarnation = world.runner.journal.incarnation
    world.disk.tear(name, garbage)
    world.agent()
    book = world.runner.journal
    assert list(book.bad) == [name]
    assert world.disk.files[f"{name}.bad"] == garbage
    assert book.revision == 0
    assert book.node_id == NODE
    assert (book.incarnation == incarnation) == (name == f"{ID}.json")
    assert [holding.id for holding in world.runner.unknown()] == ([ID] if name == f"{ID}.json" else [])
    world.agent()  # a crash before anything was healed must not forget that something is missing
    assert world.runner.journal.revision == 0
    if name == HEAD:
        world.runner.journal.synced(STORE)
    world.settle()
    assert {condition.state for condition in world.runner.conditions()} == {"ready"}
    assert world.host.starts == {ID: 1, OTHER_ID: 2}
    assert world.runner.unknown() == []


def test_a_record_under_another_name_is_not_believed(disk: FakeDisk) -> None:
    book = journal(disk)
    book.put(Record(ID, "x"))
    disk.files[f"{OTHER_ID}.json"] = disk.files[f"{ID}.json"]
    again = journal(disk)
    assert [record.id for record in again.live()] == [ID]
    assert list(again.bad) == [f"{OTHER_ID}.json"]


def test_an_unreadable_identity_does_not_stop_the_agent(disk: FakeDisk) -> None:
    journal(disk).joined(NODE)
    disk.tear(NODE_FILE)
    assert journal(disk).node_id is None


@pytest.mark.parametrize("point", range(1, 9))
def test_a_crash_while_setting_files_aside_forgets_nothing(disk: FakeDisk, point: int) -> None:
    book = journal(disk)
    book.synced(STORE)
    book.advance(9)
    book.keep_revision()
    disk.tear(f"{ID}.json")
    passed = 0

    def hook(at: str, name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            raise Crash

    disk.hook = hook
    with contextlib.suppress(Crash):
        journal(disk)
    disk.hook = None
    again = journal(disk)
    assert again.revision == 0
    assert f"{ID}.json.bad" in disk.files
    assert f"{ID}.json" not in disk.files
