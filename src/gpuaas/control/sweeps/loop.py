"""Runs the sweeps of this replica: each at its own pace, some also when woken. A sweep that fails is tried again.

A sweep comes to its turn the way a node's frame does: by the event loop, and by a thread that has time for it. When one
begins late this server is late with all it hears, and must not take its own lag for the silence of its nodes.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from gpuaas.control.store.transaction import Store
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.control.sweeps import (
    budgets,
    drains,
    expired_break_glass,
    leases,
    lost_nodes,
    old_answers,
    old_deliveries,
    old_samples,
    preemptions,
    queue,
    reservations,
    statements,
)

log = logging.getLogger(__name__)


LATE_SECONDS = 3.0


class Sweep(NamedTuple):
    name: str
    run: Callable[[Store], int]
    every_seconds: float
    wake: str  # a topic that makes it run at once


SWEEPS = (
    Sweep("lost_nodes", lost_nodes.sweep, 2.0, "nodes"),
    Sweep("queue", queue.sweep, 5.0, "placement"),
    Sweep("expired_break_glass", expired_break_glass.sweep, 5.0, "never"),
    Sweep("drains", drains.sweep, 15.0, "never"),
    Sweep("old_answers", old_answers.sweep, 600.0, "never"),
    Sweep("old_deliveries", old_deliveries.sweep, 600.0, "never"),
    Sweep("old_samples", old_samples.sweep, 60.0, "never"),
    Sweep("preemptions", preemptions.sweep, 5.0, "never"),
    Sweep("reservations", reservations.sweep, 10.0, "never"),
    Sweep("leases", leases.sweep, 10.0, "never"),
    Sweep("budgets", budgets.sweep, 60.0, "budgets"),
    Sweep("statements", statements.sweep, 600.0, "never"),
)


async def run(store: Store, wakes: Wakes) -> None:
    await asyncio.gather(*(repeat(sweep, store, wakes) for sweep in SWEEPS))


async def repeat(sweep: Sweep, store: Store, wakes: Wakes) -> None:
    due = time.monotonic()
    with wakes.on(sweep.wake) as woken:
        while True:
            started = time.monotonic()
            try:
                done = await asyncio.to_thread(begin, sweep, store, due)
                store.meters.mark("sweep_age_seconds", sweep=sweep.name)
                store.meters.observe("sweep_seconds", time.monotonic() - started, sweep=sweep.name)
                if done:
                    log.info("swept", extra={"fields": {"sweep": sweep.name, "changed": done}})
            except Exception:
                store.meters.add("sweep_failures_total", sweep=sweep.name)
                log.exception("the sweep %s failed", sweep.name)
            due = time.monotonic() + sweep.every_seconds
            await wait(woken, sweep.every_seconds)
            due = min(due, time.monotonic())


def begin(sweep: Sweep, store: Store, due: float) -> int:
    late = time.monotonic() - due
    if late > LATE_SECONDS:
        store.since = store.clock.now()
        log.warning("this server is behind", extra={"fields": {"sweep": sweep.name, "seconds": round(late, 1)}})
    return sweep.run(store)
