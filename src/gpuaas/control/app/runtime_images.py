"""Images on the server that nobody can ask for any more: which they are, and removing them.

Whoever publishes a version looks for its image while holding the version's row. So an image is first put aside, then
the rows that name it are locked and read: either the publisher has seen the image, and we see them and bring it back,
or they look afterwards and are told that it has to be sent.
"""

from dataclasses import dataclass
from datetime import timedelta

from gpuaas.control.app import access
from gpuaas.control.app.nodes import record
from gpuaas.control.store import image_places, runtime_bundles
from gpuaas.control.store.images import Images, Stored
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller

ACTION = "runtime_image.collect"


@dataclass(frozen=True)
class Unused:
    digest: str
    size: int
    kind: str  # image; upload: the half of one
    name: str  # of the version that had it; empty: none has


def unused(tx: Tx, caller: Caller, images: Images, older_than_seconds: int) -> list[Unused]:
    """What would be removed now."""
    access.on_platform(tx, caller, "runtime_image.read")
    found = []
    for project_id, place in image_places.everywhere(images):
        old = _old(tx, place, older_than_seconds)
        found += _described(tx, old, _needed(tx, old, older_than_seconds, project_id))
    return found


class Aside:
    """Images that go when the removal of all is committed."""

    def __init__(self) -> None:
        self._places: list[tuple[Images, set[str]]] = []

    def of(self, place: Images) -> set[str]:
        self._places.append((place, set()))
        return self._places[-1][1]

    @property
    def digests(self) -> list[str]:
        return sorted(digest for _, digests in self._places for digest in digests)

    def drop(self) -> None:
        for place, digests in self._places:
            place.drop_aside(digests)

    def bring_back(self) -> None:
        for place, digests in self._places:
            place.bring_back(digests)


def collect(tx: Tx, caller: Caller, images: Images, older_than_seconds: int, aside: Aside) -> list[Unused]:
    """Images are left `aside`, for the caller to drop when all of this is committed, or to bring back if it is not."""
    access.on_platform(tx, caller, ACTION)
    gone = []
    for project_id, place in image_places.everywhere(images):
        gone += _collect(tx, project_id, place, older_than_seconds, aside.of(place))
    said = {"images": aside.digests, "uploads": sum(each.kind == "upload" for each in gone)}
    freed = sum(each.size for each in gone)
    record(tx, ACTION, "runtime_image", "all", older_than_seconds=older_than_seconds, bytes=freed, **said)
    return gone


def _collect(tx: Tx, project_id: str | None, images: Images, older_than_seconds: int, aside: set[str]) -> list[Unused]:
    old = _old(tx, images, older_than_seconds)
    found = []
    for each in old:
        if each.whole and images.put_aside(each.digest):
            aside.add(each.digest)
            found.append(each)
    runtime_bundles.lock_all(tx, sorted(aside))
    # A new statement: it sees what those whom we waited for committed.
    needed = _needed(tx, found, older_than_seconds, project_id)
    images.bring_back(needed)
    aside -= needed
    found += [each for each in old if not each.whole and images.drop_partial(each.digest)]
    return _described(tx, found, needed)


def _old(tx: Tx, images: Images, older_than_seconds: int) -> list[Stored]:
    before = tx.now.timestamp() - older_than_seconds
    return [each for each in images.stored() if each.changed < before]


def _needed(tx: Tx, old: list[Stored], older_than_seconds: int, project_id: str | None) -> set[str]:
    since = tx.now - timedelta(seconds=older_than_seconds)
    return runtime_bundles.needed(tx, [each.digest for each in old if each.whole], since, project_id)


def _described(tx: Tx, old: list[Stored], needed: set[str]) -> list[Unused]:
    found = []
    for each in old:
        if not (each.whole and each.digest in needed):
            named = runtime_bundles.by_digest(tx, each.digest)
            kind = "image" if each.whole else "upload"
            found.append(Unused(each.digest, each.size, kind, named[0].name if named else ""))
    return found
