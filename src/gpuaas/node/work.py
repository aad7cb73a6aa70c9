"""Runs the runner's passes in threads: at once when something is wanted, and never the same object twice at a time."""

import asyncio
import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gpuaas.node.runner import Runner

log = logging.getLogger(__name__)

# One more than there are processors, for the moments in which one waits for a disk: with more of them, the first would
# only be ready as late as the last. What is taken down waits for others most of the time, for programs that end and
# GPUs that are cleared.
MAKING = 1 + (os.cpu_count() or 1)
TAKING_DOWN = 16
LONGEST_WAIT_SECONDS = 1.0
PATIENCE_SECONDS = 20.0  # for passes that are still running when the agent is told to end


async def work(runner: Runner, woken: asyncio.Event) -> None:
    """Until cancelled. Passes that have begun are left to end, though a killed one would do no harm either."""
    making = ThreadPoolExecutor(MAKING, thread_name_prefix="make")
    taking_down = ThreadPoolExecutor(TAKING_DOWN, thread_name_prefix="take-down")
    busy: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            woken.clear()
            for id in await asyncio.to_thread(runner.wanted):
                if id not in busy:
                    pool = making if runner.is_wanted(id) else taking_down
                    busy[id] = asyncio.create_task(_pass(runner, pool, id))
                    busy[id].add_done_callback(partial(_ended, busy, id, woken))
            # Not wait_for(): before Python 3.12 it swallows a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_pause(runner)):
                    await woken.wait()
    finally:
        for pool in (making, taking_down):
            pool.shutdown(wait=False, cancel_futures=True)
        if busy:
            await asyncio.wait(list(busy.values()), timeout=PATIENCE_SECONDS)


async def observe(runner: Runner) -> None:
    """Looks at the machines once a second, until cancelled."""
    while True:
        try:
            await asyncio.to_thread(runner.observe)
            await asyncio.to_thread(runner.rest)
        except Exception:  # the outer loop: a look that fails is repeated
            log.exception("could not look at the machines")
        await asyncio.sleep(LONGEST_WAIT_SECONDS)


async def _pass(runner: Runner, pool: ThreadPoolExecutor, id: str) -> None:
    try:
        await asyncio.get_running_loop().run_in_executor(pool, runner.converge, id)
    except Exception:  # the outer loop: one object must never stop the others, nor spin
        log.exception("a pass over %s broke off", id)
        await asyncio.sleep(LONGEST_WAIT_SECONDS)


def _ended(busy: dict[str, asyncio.Task[None]], id: str, woken: asyncio.Event, _: asyncio.Task[None]) -> None:
    del busy[id]
    woken.set()


def _pause(runner: Runner) -> float:
    due = runner.due()
    return LONGEST_WAIT_SECONDS if due is None else min(LONGEST_WAIT_SECONDS, max(0.0, due - runner.clock.boottime()))
