"""The cluster under every fault we know, seed by seed. `make sim SEEDS=20000` runs more."""

import logging
import os

import pytest

from gpuaas.control.store.embedded import Embedded
from sim.base import Base, prepare
from sim.run import run_seed

SEEDS = int(os.environ.get("GPUAAS_SIM_SEEDS", "500"))
AT_ONCE = 20


@pytest.fixture(scope="module")
def base(postgres: Embedded) -> Base:
    logging.getLogger("gpuaas").setLevel(logging.CRITICAL)  # crashes are the daily business here
    return prepare(postgres)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_invariants_hold(base: Base, first: int) -> None:
    accepted = 0
    for seed in range(first, min(first + AT_ONCE, SEEDS)):
        accepted += run_seed(seed, base).counts["launch accepted"]
    assert accepted > 0, "nothing happened in any of these seeds"


def test_a_seed_repeats(base: Base) -> None:
    one, other = run_seed(4711, base), run_seed(4711, base)
    assert one.trace == other.trace
    assert one.counts == other.counts


def test_a_node_that_starts_what_a_restored_database_forgot_takes_nothing_from_anybody(base: Base) -> None:
    assert run_seed(8, base, measured=True).restored == 1


@pytest.mark.timeout(300)
def test_invariants_hold_while_machines_are_measured(base: Base) -> None:
    assert sum(run_seed(seed, base, measured=True).counts["samples"] for seed in range(100, 120)) > 0
