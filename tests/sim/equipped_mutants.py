"""Planted bugs in the runtimes of machines."""

from dataclasses import replace

from .planted import CONTROL, MODEL, Mutant

SEEDS = range(62, 62 + 8 * 30, 8)  # those whose clients change runtimes: see `run_seed`
_PLANTED = (
    Mutant(
        "a runtime that its node refused is wanted on",
        CONTROL + "operations/runtimes.py",
        "        _refused(tx, allocation, row, operation, report)\n        return True\n",
        "        _refused(tx, allocation, row, operation, report)\n        return False\n",
        134,
    ),
    Mutant(
        "what is there is shown before what is wanted",
        MODEL + "runtime.py",
        '("applying", "applied", "kept").index(row.state)',
        '("applied", "applying", "kept").index(row.state)',
        134,
    ),
    Mutant(
        "what was current stays so beside the new one",
        CONTROL + "operations/runtimes.py",
        '            kept.append(allocation_runtimes.move(tx, other, "keep"))\n',
        "            kept.append(other)\n",
        134,
    ),
    Mutant(
        "a newer wish leaves the older one standing",
        CONTROL + "operations/runtimes.py",
        '        if row.state == "applying":\n            allocation_runtimes.move(tx, row, "supersede"',
        '        if row.state == "kept":\n            allocation_runtimes.move(tx, row, "supersede"',
        62,
    ),
    Mutant(
        "the node does not hear that a runtime is removed",
        CONTROL + "operations/runtimes.py",
        "RUNTIME_REMOVE, runtime_facet(slug))\n    _specify(tx, changed)\n",
        "RUNTIME_REMOVE, runtime_facet(slug))\n",
        78,
    ),
    Mutant(
        "only the current version of a bundle is removed",
        CONTROL + "operations/runtimes.py",
        "        if row.slug == slug:\n            _remove(",
        '        if row.slug == slug and row.state == "applied":\n            _remove(',
        62,
    ),
    Mutant(
        "a released machine keeps its runtimes on record",
        CONTROL + "operations/release.py",
        "        allocation_runtimes.released(tx, allocation.id)\n",
        "        pass\n",
        70,
    ),
    Mutant(
        "a launch forgets the runtime that was asked for with it",
        CONTROL + "operations/launch.py",
        "        body = bodies.with_runtimes(tx, allocation.id, body)\n",
        "        pass\n",
        70,
    ),
)
EQUIPPED = tuple(replace(mutant, search=SEEDS) for mutant in _PLANTED)
