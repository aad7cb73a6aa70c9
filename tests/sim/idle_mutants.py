"""Planted bugs in what becomes of machines that do nothing."""

from .planted import CONTROL, Mutant

SEEDS = range(302, 302 + 16 * 25, 16)  # those that are about it: see `run_seed`
IDLE = (
    Mutant(
        "what a GPU does is not work",
        CONTROL + "store/leases.py",
        "use.is_(None) | (use >= percent)",
        "use.is_(None) | (use > 100)",
        302,
        SEEDS,
    ),
    Mutant(
        "a machine that nobody measures is idle",
        CONTROL + "store/leases.py",
        "    if row.somebody or row.newest is None or row.newest < tx.now - recent:",
        "    if row.somebody:",
        302,
        SEEDS,
    ),
)
