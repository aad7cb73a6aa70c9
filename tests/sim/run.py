"""Run seeds: `python -m sim.run 0 1000` from tests/, or every eighth: `python -m sim.run 64 50 8`.

Prints the trace of the first seed that breaks an invariant.
"""

import logging
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import databases
from gpuaas.control.store.embedded import Embedded

from . import faults
from .base import Base, prepare
from .invariants import Watch, settled
from .world import Limits, Violation, World

SETTLE_ROUNDS = 80


class Broken(Exception):
    """A seed found something. The message has the seed, what is wrong, and how it came to that."""


def run_seed(seed: int, base: Base, *, measured: bool = False) -> World:
    rng = random.Random(seed * 7919 + 13)
    limits = Limits(rng.choice((100, 150, 300)), rng.choice((0.0, 0.05, 0.25)))
    limits.measured = measured
    limits.leased = seed % 4 == 3
    limits.contended = seed % 8 == 5
    limits.operated = seed % 8 in (1, 2, 7)
    limits.reserving = seed % 8 == 4 and seed > 4
    limits.accounted = seed % 8 == 0 and (60 < seed < 300 or seed >= 1000)
    limits.equipped = seed % 8 == 6 and 60 < seed < 300
    limits.idling = seed % 16 == 14 and seed > 300
    limits.measured |= limits.idling
    limits.operated |= limits.accounted
    limits.leased |= limits.reserving
    if limits.contended or limits.reserving or limits.accounted or limits.equipped or limits.idling:
        limits.steps = 450 if limits.accounted else 300
    chosen = faults.swarm(rng)
    name = f"sim_{seed}_{random.SystemRandom().getrandbits(32):x}"
    with base.database(name) as url:
        world = World(seed, base, url, limits)
        try:
            _live(world, Watch(world), rng, chosen)
        except Exception as error:
            tail = "\n".join(world.trace[-60:])
            why = str(error) if isinstance(error, Violation) else traceback.format_exc()
            raise Broken(f"seed {seed}, faults {sorted(chosen)}:\n{tail}\n--> {why}") from error
        finally:
            world.close()
    return world


def _live(world: World, watch: Watch, rng: random.Random, chosen: dict[str, tuple[int, faults.Fault]]) -> None:
    world.watch = watch
    calm = world.limits.idling  # who is always interrupted never comes to do nothing
    if rng.random() < 0.8 or calm:  # most seeds start with a cluster that is up
        for _ in range(2):
            world.round()
            world.tasks.drain()
    for _ in range(world.limits.steps):
        can = world.actions()
        if rng.random() < (0.04 if calm else 0.18):
            can = [(weight, name, lambda fault=fault: fault(world, rng)) for name, (weight, fault) in chosen.items()]
            can += [(weight, name, lambda fault=fault: fault(world, rng)) for weight, name, fault in faults.HEALING]
        _step(world, watch, rng, can)
    _heal(world)
    settle(world, watch)
    settled(world)
    world.verify_audit()


def _step(world: World, watch: Watch, rng: random.Random, can: list[tuple]) -> None:
    _, name, act = rng.choices(can, [weight for weight, _, _ in can])[0]
    world.trace.append(f"{world.clock.now():%H:%M:%S} {name}")
    act()
    if world.dirty:
        world.dirty = False
        watch.check()


def _heal(world: World) -> None:
    """Faults stop: everything is alive, connected and healthy from here on."""
    world.tasks.drain()
    world.limits.lost_answers = world.limits.lost_wakes = 0.0
    world.tasks.switching = 0.0
    for server in world.servers:
        if not server.alive:
            server.start(world.url, world.monitor, world._woken)
    for agent in world.agents:
        agent.partitioned = False
        agent.host.heal()
        if not agent.alive:
            agent.start()
        agent.crash_in = None


def settle(world: World, watch: Watch) -> None:
    """Everybody gets their turn until nothing changes for a while."""
    quiet = 0
    for _ in range(SETTLE_ROUNDS):
        before = world.fingerprint()
        world.round()
        watch.check()
        world.tick(4.0)
        quiet = quiet + 1 if world.fingerprint() == before and not world.busy() else 0
        if quiet >= 2:
            return
    raise Violation("I16: it does not come to rest")


@contextmanager
def _server() -> Iterator[Embedded]:
    """The one of the test run that called us, or one of our own."""
    if directory := os.environ.get("GPUAAS_SIM_SERVER"):
        running = Embedded(Path(directory), durable=False)
        running.start()
        yield running
    else:
        with databases.server() as running:
            yield running


def main(seeds: range, worst: int = 3) -> int:
    logging.disable(logging.CRITICAL)
    started, broken, totals = time.monotonic(), 0, Counter()
    with _server() as running:
        base = prepare(running)
        for seed in seeds:
            try:
                totals.update(run_seed(seed, base).counts)
            except Broken as found:
                broken += 1
                print(found, flush=True)
                if broken >= worst:
                    break
    print(dict(totals.most_common()))
    print(f"{seeds.index(seed) + 1} seeds, {broken} broken, {time.monotonic() - started:.1f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    start, many, *more = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    step = more[0] if more else 1
    sys.exit(main(range(start, start + many * step, step), 1 if "--first" in sys.argv else 3))
