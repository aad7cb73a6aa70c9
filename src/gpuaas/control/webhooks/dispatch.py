"""Whose turn it is. Events are put on their way, webhooks with something to send are claimed, and each is worked on
by a task of its own: one that hangs holds up nobody else."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from gpuaas.control.store import deliveries, webhooks
from gpuaas.control.store.deliveries import Claim
from gpuaas.control.store.transaction import Store
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.control.webhooks.address import Network

log = logging.getLogger(__name__)

AT_ONCE = 64  # webhooks that one replica sends to at the same time
PER_ORG = 8  # of those: a tenant whose targets all hang leaves room for the others
TURN_SECONDS = 5.0  # before somebody else has a chance
POLL_SECONDS = 2.0  # how late a retry may be
PAUSE_SECONDS = 0.1  # between two looks, however much happens


class Dispatch:
    def __init__(self, store: Store, wakes: Wakes, allowed: Sequence[Network] = ()) -> None:
        self._store = store
        self._wakes = wakes
        self._allowed = allowed
        self._sending: dict[asyncio.Task[None], Claim] = {}

    async def run(self) -> None:
        with self._wakes.on("project:*", webhooks.TOPIC) as woken:
            try:
                while True:
                    try:
                        await self._look(woken)
                    except Exception:
                        log.exception("webhooks could not be looked after")
                    await asyncio.sleep(PAUSE_SECONDS)
                    await wait(woken, POLL_SECONDS)
            finally:
                left = dict(self._sending)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                for claim in left.values():
                    await self._let_go(claim)  # another replica need not wait for the lease

    async def _look(self, woken: asyncio.Event) -> None:
        if not await asyncio.to_thread(self._store.look, webhooks.are_there):
            return
        for webhook_id, project_id in await asyncio.to_thread(
            self._store.look, partial(webhooks.behind, limit=AT_ONCE)
        ):
            if await asyncio.to_thread(self._store.transact, webhooks.spread, webhook_id, project_id):
                woken.set()  # there may be more
        busy = Counter(claim.org_id for claim in self._sending.values())
        full = [org_id for org_id, count in busy.items() if count >= PER_ORG]
        if room := AT_ONCE - len(self._sending):
            claimed = await asyncio.to_thread(self._store.transact, deliveries.claim, room, PER_ORG, full)
            for claim in claimed:
                task = asyncio.create_task(self._turn(claim, woken))
                self._sending[task] = claim
                task.add_done_callback(self._sending.pop)

    async def _turn(self, claim: Claim, woken: asyncio.Event) -> None:
        from gpuaas.control.webhooks.send import send  # brings an HTTP client, which many servers never need

        over = time.monotonic() + TURN_SECONDS
        try:
            attempt = await asyncio.to_thread(self._store.transact, deliveries.begin, claim)
            while attempt is not None:
                delivery_id, timestamp = attempt.delivery_id, int(self._store.clock.now().timestamp())
                outcome = await send(attempt, timestamp, self._allowed)
                more = time.monotonic() < over
                state, attempt = await asyncio.to_thread(
                    self._store.transact, deliveries.go_on, claim, attempt, outcome, more=more
                )
                self._store.meters.add("webhook_attempts_total", outcome=state or "superseded")
                fields = {"webhook_id": claim.webhook_id, "delivery_id": delivery_id, "org_id": claim.org_id}
                log.info("webhook", extra={"fields": {**fields, "state": state, "status": outcome.status}})
                if not more:
                    woken.set()  # there may be more, when it is its turn again
        except Exception:
            log.exception("a webhook's turn failed")
        await self._let_go(claim)

    async def _let_go(self, claim: Claim) -> None:
        try:
            await asyncio.to_thread(self._store.transact, deliveries.let_go, claim)
        except Exception as error:
            log.info("a webhook is let go when its lease ends: %s", error)
