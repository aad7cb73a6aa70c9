"""Every attack on a repository that TUF's list names: refused, with a reason, and the shelf stays as it was.

Each test first does what an operator does, on the same mirror, and succeeds: what is refused is the attack.
"""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tuf.api.metadata import Metadata, Snapshot, TargetFile, Targets, Timestamp

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import bundlefile
from gpuaas.runtimes.index import repository, sources
from gpuaas.runtimes.index.repository import Repository
from runtimes.publisher import BUNDLES, FRESHNESS, LONG_AGO, ROOT, Operator, Publisher
from runtimes.registry import Registry, registry

pytestmark = pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="not installed: erofs-utils")
NOW = datetime.now(UTC)


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path)
    made.add("tool", "1.0")
    assert made.sign().waits == ()
    return made


@pytest.fixture
def operator(publisher: Publisher, tmp_path: Path) -> Operator:
    made = Operator(tmp_path, str(publisher.directory), publisher.root)
    assert made.offered() == ["tool:1.0"]
    return made


def refused(code: str, operator: Operator, spec: str = "tool") -> Problem:
    before = operator.has
    with pytest.raises(Problem) as problem:
        operator.pull(spec)
    assert problem.value.code == code, problem.value.message
    assert problem.value.hint, "it says what to do"
    assert operator.has == before
    return problem.value


def test_arbitrary_software_another_file(publisher: Publisher, operator: Operator) -> None:
    """The mirror hands out a file of its own, of the same length."""
    file = publisher.file("targets/tool/1.0/*.tar")
    honest = file.read_bytes()
    file.write_bytes(honest[:-20000] + bytes(20000))
    refused("wrong_digest", operator)
    file.write_bytes(honest)
    assert operator.pull("tool").id == "tool:1.0"


def test_arbitrary_software_an_index_of_its_own(publisher: Publisher, operator: Operator, tmp_path: Path) -> None:
    """A mirror that makes a whole index, sound in itself, with keys that nobody has pinned."""
    evil = Publisher(tmp_path / "evil")
    evil.add("tool", "1.0")
    evil.sign()
    shutil.rmtree(publisher.directory)
    shutil.copytree(evil.directory, publisher.directory)
    refused("index_not_signed", operator)


def test_rollback(publisher: Publisher, operator: Operator) -> None:
    """An old index, with all its signatures, after a newer one was seen: the old version has a hole."""
    old = publisher.copy("old")
    repository.remove(publisher.repository, [("tool", "1.0")], NOW)
    publisher.add("tool", "2.0")
    publisher.sign()
    assert operator.offered() == ["tool:2.0"]
    publisher.show(old)
    refused("index_rolled_back", operator, "tool:1.0")


def test_rollback_of_the_bundles_alone(publisher: Publisher, operator: Operator) -> None:
    """Whoever has the key for freshness says that the old list of bundles is the newest."""
    publisher.add("tool", "2.0")
    publisher.sign()
    assert operator.offered() == ["tool:1.0", "tool:2.0"]
    (publisher.directory / "metadata" / "2.targets.json").unlink()
    publisher.sign(*FRESHNESS)
    refused("index_rolled_back", operator)


def test_rollback_of_the_root(publisher: Publisher, operator: Operator) -> None:
    """After a rotation was seen, a mirror without it: the keys that were taken away do not come back."""
    old = publisher.copy("old")
    repository.rotate(publisher.repository, {"freshness": publisher.holders(("freshness-2",))}, NOW)
    publisher.sign(*ROOT, *BUNDLES, "freshness-2")
    assert operator.offered() == ["tool:1.0"]
    publisher.show(old)
    refused("index_not_signed", operator)


def test_indefinite_freeze(publisher: Publisher, operator: Operator) -> None:
    """A mirror that shows the same for ever: what is not said to be fresh again is refused."""
    publisher.sign(*FRESHNESS, at=LONG_AGO)
    problem = refused("index_expired", operator)
    assert "holds newer ones back" in problem.message
    publisher.sign(*FRESHNESS)
    assert operator.offered() == ["tool:1.0"]


@pytest.mark.parametrize("what", ["root", "bundles"])
def test_indefinite_freeze_of_one_document(publisher: Publisher, operator: Operator, what: str) -> None:
    if what == "root":
        repository.rotate(publisher.repository, {"freshness": publisher.holders(FRESHNESS)}, LONG_AGO)
    else:
        repository.add(publisher.repository, publisher.shelf, [("tool", "1.0")], LONG_AGO)
    publisher.sign()
    refused("index_expired", operator)


def test_fast_forward(publisher: Publisher, operator: Operator) -> None:
    """A stolen key for freshness writes a version that no honest one ever reaches. Another key ends that."""
    before = publisher.copy("before")
    stolen = publisher.key(FRESHNESS[0])
    timestamp = Metadata[Timestamp].from_file(str(publisher.directory / "metadata" / "timestamp.json"))
    snapshot = Metadata[Snapshot].from_file(str(publisher.file("metadata/*.snapshot.json")))
    timestamp.signed.version = snapshot.signed.version = timestamp.signed.snapshot_meta.version = 2**31 - 1
    snapshot.sign(stolen)
    (publisher.directory / "metadata" / f"{2**31 - 1}.snapshot.json").write_bytes(snapshot.to_bytes())
    timestamp.signed.snapshot_meta.length = timestamp.signed.snapshot_meta.hashes = None
    timestamp.sign(stolen)
    (publisher.directory / "metadata" / "timestamp.json").write_bytes(timestamp.to_bytes())
    assert operator.offered() == ["tool:1.0"], "it is signed: nobody can know"

    publisher.show(before)
    publisher.add("tool", "2.0")
    publisher.sign()
    refused("index_rolled_back", operator)  # the honest index is now the older one
    repository.rotate(publisher.repository, {"freshness": publisher.holders(("freshness-2",))}, NOW)
    publisher.sign(*ROOT, *BUNDLES, "freshness-2")
    assert operator.offered() == ["tool:1.0", "tool:2.0"], "after the rotation it counts from the honest number again"
    assert operator.pull("tool:2.0").id == "tool:2.0"


def test_mix_and_match(publisher: Publisher, operator: Operator) -> None:
    """Documents of different times in one mirror, each of them signed."""
    publisher.add("tool", "2.0")
    publisher.sign()
    metadata = publisher.directory / "metadata"
    honest = (metadata / "2.targets.json").read_bytes()
    shutil.copy(metadata / "1.targets.json", metadata / "2.targets.json")
    refused("wrong_digest", operator, "tool:1.0")
    (metadata / "2.targets.json").write_bytes(honest)
    shutil.copy(metadata / "1.snapshot.json", metadata / "2.snapshot.json")
    # Another operator, who has seen nothing: it is the mixture that is refused, not its age.
    refused("wrong_digest", Operator(publisher.work / "other", str(publisher.directory), publisher.root), "tool:1.0")


def test_mix_and_match_of_numbers(publisher: Publisher, operator: Operator) -> None:
    """Even where no digest tells: the number in a document is the one that was announced."""
    publisher.add("tool", "2.0")
    publisher.sign()
    metadata = publisher.directory / "metadata"
    stolen = publisher.key(FRESHNESS[0])
    snapshot = Metadata[Snapshot].from_file(str(metadata / "2.snapshot.json"))
    snapshot.signed.meta["targets.json"].length = snapshot.signed.meta["targets.json"].hashes = None
    snapshot.sign(stolen)
    (metadata / "2.snapshot.json").write_bytes(snapshot.to_bytes())
    timestamp = Metadata[Timestamp].from_file(str(metadata / "timestamp.json"))
    timestamp.signed.snapshot_meta.length = timestamp.signed.snapshot_meta.hashes = None
    timestamp.sign(stolen)
    (metadata / "timestamp.json").write_bytes(timestamp.to_bytes())
    shutil.copy(metadata / "1.targets.json", metadata / "2.targets.json")
    refused("index_rolled_back", operator, "tool:1.0")


@pytest.fixture
def web() -> Iterator[Registry]:
    with registry() as found:
        yield found


def served(publisher: Publisher, web: Registry) -> Operator:
    for file in publisher.directory.rglob("*"):
        if file.is_file() and "waiting" not in file.parts:
            web.files[f"/{file.relative_to(publisher.directory)}"] = file.read_bytes()
    made = Operator(publisher.work / "by-web", web.url, publisher.root)
    assert made.offered() == ["tool:1.0"]
    return made


@pytest.mark.parametrize("what", ["metadata/timestamp.json", "metadata/2.root.json", "targets/tool/1.0/*.tar"])
def test_endless_data(publisher: Publisher, web: Registry, what: str) -> None:
    """Bytes without end: no more are taken than a root may have, or than the index says."""
    operator = served(publisher, web)
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b" " * 65536

    found = list(publisher.directory.glob(what)) or [publisher.directory / what]
    web.files[f"/{found[0].relative_to(publisher.directory)}"] = endless
    refused("too_large", operator)
    assert sent < 64 * 2**20, "only what buffers on the way hold"


def test_slow_retrieval(publisher: Publisher, web: Registry, tmp_path: Path) -> None:
    """A byte at a time, for ever: the time that it took is counted, not the silence between two bytes."""
    operator = served(publisher, web)
    passed = 0.0

    def later() -> float:
        nonlocal passed
        passed += 25.0  # at each look: a few bytes in a minute
        return passed

    def drip() -> Iterator[bytes]:
        while True:
            yield b" "

    web.files["/metadata/timestamp.json"] = drip
    with pytest.raises(Problem) as problem:
        sources.look(operator.shelf, operator.source, now=later)
    assert problem.value.code == "too_slow"


def test_wrong_software_from_a_mirror(publisher: Publisher, operator: Operator) -> None:
    """A file of the same publisher, but of another runtime than was asked for."""
    publisher.add("other", "1.0")
    publisher.sign()
    assert operator.pull("other").id == "other:1.0"
    shutil.copy(publisher.file("targets/other/1.0/*.tar"), publisher.file("targets/tool/1.0/*.tar"))
    with pytest.raises(Problem) as problem:
        operator.pull("tool")
    assert problem.value.code in ("wrong_digest", "too_large"), "of another length, or of another content"
    assert operator.has == ["other:1.0"]


def test_wrong_software_from_the_publisher(publisher: Publisher, operator: Operator) -> None:
    """Signed, but under the name of something else: a mistake of the publisher's, or worse."""
    publisher.build("other", "6.6")
    named = publisher.work / "wrong.tar"
    bundlefile.export("other", "6.6", publisher.shelf, named)
    targets = publisher.repository.targets()
    assert targets is not None
    (said,) = targets.signed.targets.values()
    lie = TargetFile.from_file(said.path, str(named), ["sha256"])
    lie.unrecognized_fields["custom"] = said.custom
    wrong = Targets(version=2, expires=targets.signed.expires, targets={said.path: lie})
    publisher.repository.draft("targets", Metadata(wrong))
    shutil.copy(named, publisher.directory / "targets" / repository.carried(lie))
    publisher.sign()
    problem = refused("wrong_bundle", operator)
    assert "other:6.6" in problem.message


def test_key_compromise_below_the_threshold(publisher: Publisher, operator: Operator) -> None:
    """One of the two keys for bundles, and the one for freshness: it takes two."""
    stolen = publisher.key(BUNDLES[0])
    publisher.add("tool", "6.6")
    assert publisher.sign(BUNDLES[0], *FRESHNESS).waits == (
        f"bundles 2: 1 more of the keys {publisher.key(BUNDLES[1]).public_key.keyid[:12]}",
    )
    assert operator.offered() == ["tool:1.0"], "what waits is seen by nobody"
    draft = publisher.repository.waiting("targets", Targets)
    assert draft is not None
    draft.sign(stolen, append=True)
    publisher.repository.publish("2.targets.json", draft)
    publisher.sign(*FRESHNESS)
    refused("index_not_signed", operator)


def test_key_compromise_one_key_signs_twice(publisher: Publisher, operator: Operator) -> None:
    """A signature that is there twice, under another name too, counts once."""
    publisher.add("tool", "6.6")
    publisher.sign(BUNDLES[0])
    draft = publisher.repository.waiting("targets", Targets)
    assert draft is not None
    document = json.loads(draft.to_bytes())
    other = publisher.key(BUNDLES[1]).public_key.keyid
    document["signatures"].append({"keyid": other, "sig": document["signatures"][0]["sig"]})
    (publisher.directory / "metadata" / "2.targets.json").write_text(json.dumps(document))
    publisher.sign(*FRESHNESS)
    refused("index_not_signed", operator)


def test_key_compromise_after_a_rotation(publisher: Publisher, operator: Operator) -> None:
    """Both keys for bundles were stolen, and replaced. What they sign counts no longer, however new it is."""
    thief = Publisher.__new__(Publisher)
    thief.__dict__ |= {**publisher.__dict__, "directory": publisher.copy("thief")}
    thief.repository = Repository(thief.directory)
    replaced = {"bundles": publisher.holders(("bundles-3", "bundles-4"), 2)}
    repository.rotate(publisher.repository, replaced, NOW)
    publisher.sign(*ROOT, "bundles-3", "bundles-4", *FRESHNESS)
    assert operator.offered() == ["tool:1.0"]
    honest = publisher.copy("honest")
    thief.add("tool", "6.6")
    thief.add("tool", "6.7")
    thief.sign(*BUNDLES, *FRESHNESS)
    thief.sign(*FRESHNESS)
    shutil.copy(publisher.directory / "metadata" / "2.root.json", thief.directory / "metadata" / "2.root.json")
    publisher.show(thief.directory)
    refused("index_not_signed", operator, "tool:6.6")
    publisher.show(honest)
    publisher.sign("bundles-3", "bundles-4", *FRESHNESS, at=NOW + timedelta(hours=1))
    publisher.sign(*FRESHNESS)
    assert operator.pull("tool").id == "tool:1.0"


@pytest.mark.parametrize("signers", [("root-1",), ("root-4", "root-5"), ("root-1", "root-4"), ("root-1", "root-2")])
def test_a_root_that_its_predecessor_or_itself_did_not_sign(
    publisher: Publisher, operator: Operator, signers: tuple[str, ...]
) -> None:
    """Other keys for everything, but not signed by two of the old and two of the new."""
    repository.rotate(publisher.repository, {"root": publisher.holders(("root-4", "root-5"), 2)}, NOW)
    outcome = publisher.sign(*signers)
    assert outcome.waits
    assert not outcome.published
    assert operator.offered() == ["tool:1.0"]
    shutil.copy(publisher.directory / "waiting" / "root.json", publisher.directory / "metadata" / "2.root.json")
    refused("index_not_signed", operator)


def test_a_root_that_skips_a_number(publisher: Publisher, operator: Operator) -> None:
    """An older, or a later one in the place of the next."""
    metadata = publisher.directory / "metadata"
    shutil.copy(metadata / "1.root.json", metadata / "2.root.json")
    refused("index_rolled_back", operator)


def test_nothing_is_trusted_on_first_use(publisher: Publisher, operator: Operator) -> None:
    for said in (str(publisher.work / "elsewhere"), "https://mirror.example.org", "other"):
        with pytest.raises(Problem, match="not pinned here") as problem:
            sources.find(operator.shelf, said)
        assert "--root" in problem.value.hint


def test_another_root_than_the_one_that_was_pinned(publisher: Publisher, tmp_path: Path) -> None:
    """The operator pinned the root of somebody else: this mirror's index is not theirs."""
    other = Publisher(tmp_path / "other")
    other.sign()
    operator = Operator(tmp_path, str(publisher.directory), other.root)
    refused("index_not_signed", operator)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 10_000, b'{"signed": {"_type": "timestamp"}}', b"\xff\xfe"])
def test_nonsense_instead_of_an_index(publisher: Publisher, operator: Operator, data: bytes) -> None:
    (publisher.directory / "metadata" / "timestamp.json").write_bytes(data)
    refused("index_not_readable", operator)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_directory_that_leads_elsewhere(publisher: Publisher, operator: Operator, kind: str) -> None:
    """A disk that somebody brought: a link to what has no end, a pipe that nobody writes to."""
    file = publisher.file("targets/tool/1.0/*.tar")
    file.unlink()
    if kind == "link":
        file.symlink_to("/dev/zero")
    else:
        os.mkfifo(file)
    refused("index_unreachable", operator)


def test_names_in_an_index_that_lead_out_of_it(publisher: Publisher, operator: Operator) -> None:
    targets = publisher.repository.targets()
    assert targets is not None
    (said,) = targets.signed.targets.values()
    for path in ("../../../etc/1.0/amd64.tar", "tool/../../amd64.tar", "tool/1.0/sparc.tar", "TOOL/1.0/amd64.tar"):
        targets.signed.targets[path] = said.from_dict(said.to_dict(), path)
    targets.signed.version = 2
    publisher.repository.draft("targets", Metadata(targets.signed))
    publisher.sign()
    assert operator.offered() == ["tool:1.0"]
