"""Planted bugs that the simulation must catch: one edit each, and a seed that catches it.

Each is run in a copy of the source tree by a process of its own. `python -m sim.mutants [NAME...]` (from tests/) writes
down another seed for those whose own catches them no more: any change of the product can do that.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import databases

from .accounted_mutants import ACCOUNTED
from .base import prepare
from .equipped_mutants import EQUIPPED
from .idle_mutants import IDLE
from .operated_mutants import OPERATED
from .planted import CONTROL, NODE, Mutant

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"


MUTANTS = (
    *OPERATED,
    *ACCOUNTED,
    *EQUIPPED,
    *IDLE,
    Mutant(
        "a slot that is being scrubbed looks free",
        CONTROL + "store/slots.py",
        "    claim=capacity.CLAIM_BY_INDEX,",
        "    claim=capacity.CLAIM_BY_INDEX.replace(\"<> 'freed'\", \"= 'held'\"),",
        4,
    ),
    Mutant(
        "a claim is not counted",
        CONTROL + "operations/launch.py",
        "    _count(tx, found)\n    return started",
        "    return started",
        0,
    ),
    Mutant(
        "a slot that is free again is not counted",
        CONTROL + "store/claims.py",
        "    capacity.changed(tx, node_id)\n",
        "",
        0,
    ),
    Mutant(
        "a node that fell silent stays open",
        CONTROL + "store/nodes.py",
        "    capacity.changed(tx, node.id)\n",
        "",
        0,
    ),
    Mutant(
        "a restored store places before nodes said what they hold",
        CONTROL + "store/stores.py",
        "    capacity.close_all(tx)\n",
        "",
        0,
    ),
    Mutant(
        "slots freed before the node has scrubbed them",
        CONTROL + "operations/release.py",
        "    claims.scrubbing(tx, moved.id)\n",
        "    claims.scrubbing(tx, moved.id)\n    claims.free(tx, moved.id, allocation.node_id, [])\n",
        1,
    ),
    Mutant(
        "a failed launch leaves its machine behind",
        CONTROL + "operations/observe.py",
        'release.bury(tx, allocation, "launch_failed", **reason)',
        'allocations.move(tx, allocation, "launch_failed", **reason)',
        4,
    ),
    Mutant(
        "an answer is not kept for its key",
        CONTROL + "app/idempotency.py",
        "        idempotency.keep(tx, caller, key, answer)\n",
        "",
        0,
    ),
    Mutant(
        "usage goes on after the machine is gone",
        CONTROL + "store/allocations.py",
        "usage.close(tx, moved.id, MACHINE_TIME, at or tx.now)",
        "pass",
        3,
    ),
    Mutant(
        "usage is opened by every restart",
        CONTROL + "store/allocations.py",
        "if allocation.state not in COSTING and moved.state in COSTING:",
        "if moved.state in COSTING:",
        5,
    ),
    Mutant(
        "usage ends with every restart",
        CONTROL + "store/allocations.py",
        "elif allocation.state in COSTING and moved.state not in COSTING:",
        "elif allocation.state in COSTING and moved.state != allocation.state:",
        5,
    ),
    Mutant(
        "a silent node's machine costs until somebody notices",
        CONTROL + "operations/reachability.py",
        'allocations.move(tx, allocation, "lost", at=node.last_seen_at)',
        'allocations.move(tx, allocation, "lost", at=tx.now)',
        45,
    ),
    Mutant(
        "a machine that is back is charged for its absence",
        CONTROL + "store/usage.py",
        "greatest(%(now)s, (SELECT u.ended_at",
        "least(%(now)s, (SELECT u.ended_at",
        45,
    ),
    Mutant(
        "usage is rounded to seconds",
        CONTROL + "store/usage.py",
        "SET ended_at = greatest(started_at, %(at)s)",
        "SET ended_at = greatest(started_at, date_trunc('second', %(at)s::timestamptz))",
        3,
    ),
    Mutant(
        "the GPUs of a machine are not counted",
        CONTROL + "store/usage.py",
        "c.state = 'held' ORDER BY gpu",
        "c.state = 'scrubbing' ORDER BY gpu",
        0,
    ),
    Mutant(
        "usage is counted until the machine is torn down",
        CONTROL + "store/allocations.py",
        "moved.state not in COSTING:\n        usage.close",
        'moved.state not in COSTING and moved.state != "releasing":\n        usage.close',
        5,
    ),
    Mutant(
        "a loss is told as if it had been noticed at once",
        CONTROL + "store/allocations.py",
        "    _tell(tx, moved, allocation.state, at)\n",
        "    _tell(tx, moved, allocation.state)\n",
        45,
    ),
    Mutant(
        "a machine comes back as active whatever it was",
        CONTROL + "store/allocations.py",
        "becomes = allocation.previous_state",
        'becomes = "active"',
        2,
    ),
    Mutant(
        "what a restored store does not know is deleted",
        CONTROL + "operations/drift.py",
        "        if not holding.gone:\n            set_aside(",
        "        if not holding.gone:\n"
        "            specs.write(tx, node_id, holding.id, holding.incarnation, holding.generation + 1, None)\n"
        "            set_aside(",
        8,
    ),
    Mutant(
        "a node that follows another store is not asked what it holds",
        CONTROL + "link/session.py",
        "synced = hello.store_id == store_id and node.synced_store_id == store_id",
        "synced = True",
        0,
    ),
    Mutant(
        "connections share an epoch",
        CONTROL + "store/nodes.py",
        "epoch=t.nodes.c.epoch + 1",
        "epoch=t.nodes.c.epoch + 0",
        29,
    ),
    Mutant(
        "a pushed batch claims more than it has",
        CONTROL + "link/session.py",
        "return Specs(store_id, since, upto, batch)",
        "return Specs(store_id, since, upto + 1, batch)",
        0,
    ),
    Mutant(
        "the first unseen spec is skipped",
        CONTROL + "store/specs.py",
        "AND revision > %(revision)s ORDER BY",
        "AND revision > %(revision)s + 1 ORDER BY",
        0,
    ),
    Mutant(
        "a revision is taken without being written",
        CONTROL + "store/specs.py",
        "SET revision = revision + 1 WHERE id = %(node_id)s RETURNING revision)",
        "SET revision = revision WHERE id = %(node_id)s RETURNING revision + 1 AS revision)",
        0,
    ),
    Mutant(
        "a state change without an event",
        CONTROL + "store/allocations.py",
        "    _tell(tx, moved, allocation.state, at)\n",
        '    if moved.state != "failed":\n        _tell(tx, moved, allocation.state, at)\n',
        4,
    ),
    Mutant(
        "newer intent does not supersede",
        CONTROL + "store/operations.py",
        "if kind.absorbs or current.facet == (facet or kind.facet):",
        "if kind.absorbs and current.facet != (facet or kind.facet):",
        0,
    ),
    Mutant(
        "a seat is free when the machine is released",
        CONTROL + "store/allocations.py",
        "SELECT seat FROM allocations WHERE node_id = {node_id} AND reaped_at IS NULL",
        "SELECT seat FROM allocations WHERE node_id = {node_id} AND reaped_at IS NULL AND state <> 'releasing'",
        1,
    ),
    Mutant(
        "queued machines are forgotten",
        CONTROL + "operations/waiting.py",
        "    found = launch.place(tx, group, offer)\n",
        "    return 0, True\n    found = launch.place(tx, group, offer)\n",
        2,
    ),
    Mutant(
        "what was asked for on one facet is all that a report ends",
        CONTROL + "operations/observe.py",
        "        for operation in operations.running(tx, allocation.id)\n",
        "        for operation in operations.running(tx, allocation.id)[-1:]\n",
        0,
    ),
    Mutant(
        "a deleted key still opens machines",
        CONTROL + "app/keys.py",
        "machine_access.withdraw(tx, allocations.owned(tx, user_id), [key])",
        "machine_access.withdraw(tx, [], [key])",
        1,
    ),
    Mutant(
        "a failed change brings a deleted key back",
        CONTROL + "operations/access.py",
        "        _forget(tx, allocation, lost)\n",
        "",
        35,
    ),
    Mutant(
        "who was on a machine that ended is there for ever",
        CONTROL + "link/logins.py",
        "        logins.machine_ended(tx, allocation, when, _why(fact.kind, fact.data))\n",
        "",
        51,
    ),
    Mutant(
        "a lease ends without a warning",
        "gpuaas/model/lease.py",
        "if left <= timedelta() and lease.stage == MINUTES and lease.stage_at and now - lease.stage_at >= end.notice:",
        "if left <= timedelta():",
        7,
    ),
    Mutant(
        "a lease is counted from when the machine was asked for",
        "gpuaas/model/lease.py",
        "end = lease.ends_at or begin + seconds",
        "end = lease.ends_at or allocation.created_at + seconds",
        3,
    ),
    Mutant(
        "what was extended is released all the same",
        CONTROL + "app/leases.py",
        '{"extended_at": tx.now, "stage": None, "stage_at": None}',
        '{"extended_at": tx.now}',
        51,
    ),
    Mutant(
        "a stopped machine is released without its grace",
        "gpuaas/model/lease.py",
        "now - lease.stage_at >= GRACE",
        "now - lease.stage_at >= timedelta()",
        3,
    ),
    Mutant(
        "a server believes its own clock",
        "gpuaas/kit/clock.py",
        "return self._told + timedelta(seconds=self._source.boottime() - self._at)",
        "return self._source.now()",
        12,
    ),
    Mutant(
        "anybody gives way",
        CONTROL + "operations/preempt.py",
        'item.preemptible and item.claim == "held"',
        'item.claim == "held"',
        5,
    ),
    Mutant(
        "who gives way has no grace",
        CONTROL + "store/preemptions.py",
        "WHERE due_at <= %(now)s",
        "WHERE warned_at <= %(now)s",
        5,
    ),
    Mutant(
        "everybody on a node gives way",
        CONTROL + "placement/giving_way.py",
        "            left = fewer\n",
        "            pass\n",
        5,
    ),
    Mutant(
        "a preemptible request makes others give way",
        CONTROL + "operations/waiting.py",
        "if _blocked_by_quota(found) or ticket.preemptible:",
        "if _blocked_by_quota(found):",
        5,
    ),
    Mutant(
        "anybody is placed on what is reserved",
        CONTROL + "placement/filters.py",
        "in_use, slot_drained, reserved)",
        "in_use, slot_drained)",
        28,
    ),
    Mutant(
        "a reserved slot is counted as free",
        CONTROL + "store/capacity.py",
        "d.slot_id IS NULL AND b.slot_id IS NULL)::int AS slots",
        "d.slot_id IS NULL)::int AS slots",
        20,
    ),
    Mutant(
        "a reservation that is over keeps its slots",
        CONTROL + "operations/reserve.py",
        "    bookings.remove(tx, reservation.id, range(reservation.count))\n",
        "",
        12,
    ),
    Mutant(
        "a window is booked over a later one",
        CONTROL + "operations/booking.py",
        "starts_at=starts_at, free_at=ends_at + TAIL)",
        "starts_at=starts_at, free_at=starts_at)",
        44,
    ),
    Mutant(
        "who may stay for ever is booked over",
        "gpuaas/model/reservation.py",
        "return min(known, default=None)",
        "return min(known, default=now)",
        20,
    ),
    Mutant(
        "a reservation is given up as soon as it begins",
        CONTROL + "operations/reserve.py",
        "if tx.now - ready_at >= UNUSED:",
        "if tx.now >= ready_at:",
        44,
    ),
    Mutant(
        "a node starts what was stopped",
        NODE + "steps/container.py",
        "        if body.stopped:\n",
        "        if body.stopped and machine is not None:\n",
        3,
    ),
    Mutant(
        "teardown forgets to scrub",
        NODE + "steps/__init__.py",
        "tuple(reversed(STEPS[1:]))",
        "tuple(step for step in reversed(STEPS[1:]) if step.name != 'devices')",
        0,
    ),
    Mutant(
        "every pass restarts the machine",
        NODE + "steps/interrupt.py",
        "return machine.restarts < body.restarts or other_config",
        "return machine.restarts <= body.restarts or other_config",
        7,
    ),
    Mutant(
        "a new store is followed from the old revision",
        NODE + "journal.py",
        "            self.revision = 0\n",
        "",
        13,
    ),
    Mutant(
        "a dead machine is not noticed",
        NODE + "runner.py",
        "        if machine is not None and machine.running:\n            return\n        # First",
        "        if machine is not None:\n            return\n        # First",
        0,
    ),
)


def caught(mutant: Mutant, server: Path | None = None) -> str | None:
    """What the simulation says about the mutated tree, or None when it sees nothing wrong.

    The seed that caught it last time comes first. Any change of the product changes what happens in a seed, so the
    others that it names are tried when that one has lost its bite.
    """
    with tempfile.TemporaryDirectory(prefix="gpuaas-mutant-") as directory:
        tree = Path(directory) / "src"
        shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("__pycache__"))
        target = tree / mutant.file
        text = target.read_text()
        if text.count(mutant.old) != 1:
            raise AssertionError(f"{mutant.name}: {mutant.file} has {text.count(mutant.old)} places that fit")
        target.write_text(text.replace(mutant.old, mutant.new))
        known = _run(tree, range(mutant.seed, mutant.seed + 1), server) if mutant.seed is not None else None
        return known or _run(tree, mutant.search, server)


def _run(tree: Path, seeds: range, server: Path | None) -> str | None:
    shared = {"GPUAAS_SIM_SERVER": str(server)} if server else {}
    done = subprocess.run(
        [sys.executable, "-m", "sim.run", str(seeds.start), str(len(seeds)), str(seeds.step), "--first"],
        cwd=TESTS,
        env=os.environ | {"PYTHONPATH": f"{tree}:{TESTS}"} | shared,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    if "--> " not in done.stdout:
        raise AssertionError(f"the simulation did not run:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(names: list[str]) -> None:
    """Those whose seed has lost its bite get another one written down."""
    with databases.server() as running:
        prepare(running)
        for mutant in [mutant for mutant in MUTANTS if not names or mutant.name in names]:
            said = caught(mutant, running.directory)
            seed = said.partition("seed ")[2].partition(",")[0] if said else "None"
            why = said.partition("--> ")[2].strip().partition("\n")[0] if said else "nothing catches it"
            print(f"{mutant.name}: {seed} (was {mutant.seed}) {why}", flush=True)
            if seed != str(mutant.seed):
                _write_down(mutant, seed)


def _write_down(mutant: Mutant, seed: str) -> None:
    for file in Path(__file__).parent.glob("*mutants.py"):
        before, name, after = file.read_text().partition(f'"{mutant.name}",\n')
        if name:
            file.write_text(before + name + re.sub(r"(?m)^( +)(\d+|None),$", rf"\g<1>{seed},", after, count=1))


if __name__ == "__main__":
    main(sys.argv[1:])
