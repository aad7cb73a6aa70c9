"""The simulation is worth what it catches: every planted bug, with the seed that does."""

import pytest

from gpuaas.control.store.embedded import Embedded
from sim.base import prepare
from sim.mutants import MUTANTS, Mutant, caught


@pytest.mark.timeout(1200)  # where the seed has lost its bite, many others are tried
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_is_caught(mutant: Mutant, postgres: Embedded) -> None:
    prepare(postgres)  # the databases are those of the real code; only the copy that runs is broken
    said = caught(mutant, postgres.directory)
    assert said is not None, f"no seed sees anything wrong with: {mutant.name}"


def test_there_are_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) >= 50
