"""Broken bundles from a fixed seed: refused, and the shelf as it was; or taken in, and what their manifest says.

`make fuzz` tries ten thousand of each kind; here are as many as nobody has to wait for.
"""

import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import bundlefile, verify
from gpuaas.runtimes.shelf import Shelf
from runtimes.bundle import Bundle

pytestmark = pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="not installed: erofs-utils")
TRIES = int(os.environ.get("GPUAAS_FUZZ", "0"))
INTERESTING = (0, 1, 0x2E, 0x2F, 0x37, 0x7F, 0x80, 0xFF)


def mutated(data: bytes, random_: random.Random, most: int, within: int | None = None) -> bytes:
    """Bytes changed, a piece moved, left out or doubled."""
    found, end = bytearray(data), within or len(data)
    for _ in range(random_.randint(1, most)):
        at = random_.randrange(min(end, len(found)))
        match random_.randrange(6):
            case 0 | 1 | 2:
                found[at] = random_.choice((*INTERESTING, random_.randrange(256)))
            case 3:
                found[at] ^= 1 << random_.randrange(8)
            case 4:
                piece = found[at : at + random_.choice((1, 8, 512))]
                to = random_.randrange(len(found))
                found[to : to + len(piece)] = piece
            case _:
                length = random_.choice((1, 64, 512))
                found[at : at + length] = random_.choice((b"", found[at : at + length] * 2))
    return bytes(found)


class Trial:
    """A shelf in the middle of a directory that must not change."""

    def __init__(self, work: Path) -> None:
        self.around = work / "around"
        self.shelf = Shelf(self.around / "deep" / "shelf")
        self.shelf.make()
        (self.around / "canary").write_text("untouched")
        self.before = self.snapshot(self.around)
        self.outcomes = {"refused": 0, "taken": 0}

    def snapshot(self, place: Path) -> dict[str, tuple[int, int, int]]:
        found = {}
        for path in place.rglob("*"):
            about = path.lstat()
            found[str(path)] = (about.st_mode, about.st_size if path.is_file() else 0, about.st_uid)
        return found

    def give(self, file: Path) -> None:
        """Anything but a refusal is an error of ours, and ends the test."""
        try:
            manifest = bundlefile.take_in(file, self.shelf)
        except Problem:
            self.outcomes["refused"] += 1
        else:
            self.outcomes["taken"] += 1
            assert verify.verify(manifest.bundle, manifest.version, self.shelf).intact
            self.forget()
        now = self.snapshot(self.around)
        assert now == self.before, set(now.items()) ^ set(self.before.items())
        assert not [path for path, (mode, _, _) in now.items() if mode & (stat.S_ISUID | stat.S_ISGID)]

    def forget(self) -> None:
        for name in ("images", "bundles"):
            shutil.rmtree(self.shelf.path / name)
        self.shelf.make()


@pytest.mark.timeout(0 if TRIES else 120)
def test_broken_files(tmp_path: Path) -> None:
    """Anything in the file: the headers of its members most of all."""
    honest = Bundle(tmp_path / "work").write(tmp_path / "b.tar").read_bytes()
    random_, trial = random.Random(45), Trial(tmp_path)
    for number in range(TRIES or 400):
        header = 512 * random_.randrange(len(honest) // 512)
        where = random_.choice((None, 512, header or 512))
        (tmp_path / "b.tar").write_bytes(mutated(honest, random_, 4, where))
        trial.give(tmp_path / "b.tar")
        assert trial.outcomes["refused"] + trial.outcomes["taken"] == number + 1
    assert trial.outcomes["refused"] > 0, trial.outcomes
    assert trial.outcomes["taken"] > 0, "some bytes of a tar mean nothing"


@pytest.mark.timeout(0 if TRIES else 120)
def test_broken_images_with_honest_papers(tmp_path: Path) -> None:
    """Every digest fits, so that the image itself is looked at: it unpacks to what was listed, or is refused."""
    bundle, random_, trial = Bundle(tmp_path / "work"), random.Random(46), Trial(tmp_path)
    bundle.write(tmp_path / "b.tar")
    honest = bundle._image()
    for _ in range(TRIES or 60):
        bundle.image = mutated(honest, random_, 3, random_.choice((4096, None)))
        trial.give(bundle.write(tmp_path / "b.tar"))
    assert trial.outcomes["refused"] > 0, trial.outcomes
