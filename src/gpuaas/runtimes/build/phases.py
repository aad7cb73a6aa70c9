"""The phases of a build, in their order, and how far it is. What they do is in `builder`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

PHASES = (
    ("check", "look at the machine, the disk and the registries"),
    ("lock", "decide every version"),
    ("fetch", "download and compare digests"),
    ("unpack", "put the tree together"),
    ("finish", "install wheels and run the recipe's commands"),
    ("compile", "bytecode"),
    ("image", "write the image"),
    ("verify", "run the recipe's checks in it"),
    ("store", "manifest, bill of materials"),
)


class Progress(Struct, frozen=True):
    phase: str
    state: str  # running, done, failed
    message: str = ""
    percent: int | None = None


Report = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """When nobody watches."""


@contextmanager
def phase(name: str, report: Report) -> Iterator[Callable[[str, int | None], None]]:
    """Reports begin and end; yields what to call in between."""
    report(Progress(name, "running"))
    last = ""

    def say(message: str, percent: int | None = None) -> None:
        nonlocal last
        last = message
        report(Progress(name, "running", message, percent))

    try:
        yield say
    except BaseException as error:
        report(Progress(name, "failed", str(error)))
        raise
    report(Progress(name, "done", last, 100))
