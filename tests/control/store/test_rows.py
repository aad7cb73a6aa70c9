"""What comes out of the database is what its dataclass would make of it."""

from dataclasses import FrozenInstanceError, dataclass

import pytest

from gpuaas.control.store.rows import made, names


@dataclass(frozen=True)
class Thing:
    id: str
    sizes: tuple[int, ...]
    note: str | None = None


def test_a_row_becomes_what_its_dataclass_makes_of_it() -> None:
    assert names(Thing) == "id, sizes, note"
    thing = made(Thing, ("th-1", [1, 2], None))
    assert thing == Thing("th-1", (1, 2), None)
    assert hash(thing) == hash(Thing("th-1", (1, 2)))
    assert repr(thing) == repr(Thing("th-1", (1, 2)))
    with pytest.raises(FrozenInstanceError):
        thing.id = "th-2"  # type: ignore[misc]


@pytest.mark.parametrize("row", [("th-1", [1]), ("th-1", [1], None, 4)])
def test_a_row_of_another_length_is_none(row: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="argument 2 is"):
        made(Thing, row)
