"""Images on the server's disk: complete and checked under their name, or not there."""

import fcntl
import hashlib
from pathlib import Path
from typing import Any

import pytest

from gpuaas.control.store.images import Images
from gpuaas.kit.errors import Problem

IMAGE = bytes(range(256)) * 40
DIGEST = hashlib.sha256(IMAGE).hexdigest()


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images")


def send(images: Images, data: bytes, first: int = 0, digest: str = DIGEST, size: int = len(IMAGE)) -> int:
    with images.arriving(digest, size, first) as arrival:
        for start in range(0, len(data), 1000):
            arrival.write(data[start : start + 1000])
        return arrival.close()


def test_it_has_its_name_when_all_of_it_is_here(images: Images) -> None:
    assert (send(images, IMAGE[:3000]), images.complete(DIGEST)) == (3000, False)
    assert images.received(DIGEST, len(IMAGE)) == 3000
    assert (send(images, IMAGE[3000:], 3000), images.complete(DIGEST)) == (len(IMAGE), True)
    assert images.path(DIGEST).read_bytes() == IMAGE
    assert [file.name for file in images.directory.iterdir()] == [f"{DIGEST}.erofs"]


def test_what_was_sent_before_is_skipped(images: Images) -> None:
    """The answer to the first part was lost, so it comes again, with more."""
    send(images, IMAGE[:3500])
    send(images, IMAGE[500:], 500)
    assert images.path(DIGEST).read_bytes() == IMAGE
    assert send(images, IMAGE) == len(IMAGE)
    assert images.path(DIGEST).read_bytes() == IMAGE


def test_a_hole_is_refused_and_says_where_to_go_on(images: Images) -> None:
    send(images, IMAGE[:100])
    with pytest.raises(Problem) as refused:
        send(images, IMAGE[200:], 200)
    assert (refused.value.code, refused.value.extra["received"]) == ("hole", 100)


def test_more_than_was_promised_is_refused(images: Images) -> None:
    with pytest.raises(Problem):
        send(images, IMAGE + b"x")
    assert not images.complete(DIGEST)


def test_other_bytes_are_gone_and_can_be_sent_again(images: Images) -> None:
    with pytest.raises(Problem) as refused:
        send(images, IMAGE[:-1] + b"x")
    assert refused.value.code == "digest_mismatch"
    assert images.received(DIGEST, len(IMAGE)) == 0
    assert list(images.directory.iterdir()) == []
    send(images, IMAGE)
    assert images.complete(DIGEST)


def test_two_do_not_send_the_same_at_once(images: Images) -> None:
    with images.arriving(DIGEST, len(IMAGE), 0) as arrival:
        arrival.write(IMAGE[:10])
        with pytest.raises(Problem) as refused:
            send(images, IMAGE)
    assert refused.value.code == "in_progress"
    assert images.received(DIGEST, len(IMAGE)) == 10  # what came before the connection was lost is kept


def test_what_was_put_aside_is_not_here_and_comes_back(images: Images) -> None:
    send(images, IMAGE)
    assert images.put_aside(DIGEST)
    assert not images.complete(DIGEST)
    assert images.put_aside(DIGEST), "twice is once"
    assert [(each.digest, each.whole) for each in images.stored()] == [(DIGEST, True)]
    Images(images.directory).bring_back_all()  # as a server does at its start
    assert images.path(DIGEST).read_bytes() == IMAGE
    images.drop_aside([DIGEST])
    assert images.complete(DIGEST), "what has its name is never dropped"
    assert not images.put_aside("0" * 64)


def test_sent_again_while_it_is_aside(images: Images) -> None:
    send(images, IMAGE)
    images.put_aside(DIGEST)
    assert send(images, IMAGE) == len(IMAGE)
    images.drop_aside([DIGEST])
    assert images.path(DIGEST).read_bytes() == IMAGE


def test_half_an_image_that_is_being_sent_is_not_dropped(images: Images) -> None:
    with images.arriving(DIGEST, len(IMAGE), 0) as arrival:
        arrival.write(IMAGE[:10])
        assert not images.drop_partial(DIGEST)
    assert images.received(DIGEST, len(IMAGE)) == 10
    assert images.drop_partial(DIGEST)
    assert images.stored() == []
    assert not images.drop_partial(DIGEST)


def test_dropped_between_opening_and_locking(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes go into a file that has a name, never into the one that has just lost it."""
    send(images, IMAGE[:10])
    lock, seen = fcntl.flock, []

    def just_before(file: Any, how: int) -> None:
        if not seen:
            seen.append(how)
            images.directory.joinpath(f".{DIGEST}.partial").unlink()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", just_before)
    with pytest.raises(Problem) as refused:
        send(images, IMAGE[10:], 10)
    assert (refused.value.code, refused.value.extra["received"]) == ("hole", 0)
    assert send(images, IMAGE) == len(IMAGE)
    assert images.path(DIGEST).read_bytes() == IMAGE


def test_a_damaged_one_is_gone_once_it_was_read_and_can_be_sent_again(images: Images) -> None:
    assert images.verify(DIGEST) == "missing"
    send(images, IMAGE)
    assert images.verify(DIGEST) == "intact"
    with images.path(DIGEST).open("r+b") as file:
        file.seek(5000)
        file.write(b"?")
    assert images.received(DIGEST, len(IMAGE)) == len(IMAGE)  # nobody has looked yet
    assert images.verify(DIGEST) == "damaged"
    assert (images.complete(DIGEST), images.received(DIGEST, len(IMAGE))) == (False, 0)
    assert send(images, IMAGE) == len(IMAGE)
    assert images.verify(DIGEST) == "intact"


def test_one_that_cannot_be_read_stays(images: Images) -> None:
    images.path(DIGEST).mkdir(parents=True)
    with pytest.raises(Problem, match="cannot be read"):
        images.verify(DIGEST)
    assert images.path(DIGEST).exists()
