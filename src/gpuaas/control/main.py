"""The composition root of the server: store, wake-ups, sweeps, HTTP, node link."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn
from litestar import Litestar

from gpuaas.control.config import RATES, Oidc, Rates, ServerConfig
from gpuaas.control.http.application import build
from gpuaas.control.http.one_write import OneWrite
from gpuaas.control.link.pulse import Pulse
from gpuaas.control.link.socket import node_link
from gpuaas.control.store import clocks, image_places, migrate, stores
from gpuaas.control.store.embedded import Embedded
from gpuaas.control.store.readers import Readers
from gpuaas.control.store.transaction import PREEMPTION_GRACE, Store, connect, normalised
from gpuaas.control.store.wakes import Wakes
from gpuaas.control.sweeps import loop
from gpuaas.control.webhooks.address import networks
from gpuaas.control.webhooks.dispatch import Dispatch
from gpuaas.kit import log, memory, traces
from gpuaas.kit.seal import Seal, own_key
from gpuaas.wire.node import MAX_REPORT_BYTES


def run_server(config: ServerConfig) -> None:
    """Blocks until it is told to stop."""
    memory.give_back()
    log.setup(config.log_level)
    traces.setup("gpuaas-server")
    url = normalised(config.database_url) if config.database_url else Embedded(config.state_dir / "postgres").start()
    migrate.upgrade(url)
    with memory.starting():
        app = application(
            url,
            config.advertise_url,
            config.webhook_networks,
            metrics_token=config.metrics_token,
            state_dir=config.state_dir,
            rates=config.rates,
            oidc=config.oidc,
            preemption_grace=timedelta(seconds=config.preemption_grace_seconds),
            runtime_images_dir=config.runtime_images_dir,
            seal=Seal(_key(config)),
        )
    uvicorn.run(
        app,
        host=config.host,
        port=config.port,
        log_config=None,
        access_log=False,
        http=OneWrite,
        ws="websockets-sansio",
        ws_max_size=2 * MAX_REPORT_BYTES,
        # A stream whose reader is slow is not read from either, so that no pong gets through; the node link has a
        # heartbeat of its own.
        ws_ping_timeout=None,
        timeout_graceful_shutdown=3,
    )


def _key(config: ServerConfig) -> bytes | None:
    """Of several servers it must be the same, so that none makes one by itself: except with a database of its own."""
    if config.secrets_key is not None or config.database_url:
        return config.secrets_key
    return own_key(config.state_dir / "secrets.key")


def application(
    url: str,
    advertise_url: str = "",
    webhook_networks: Sequence[str] = (),
    *,
    metrics_token: str = "",
    state_dir: Path = Path("/"),
    rates: Rates = RATES,
    oidc: Oidc | None = None,
    preemption_grace: timedelta = PREEMPTION_GRACE,
    runtime_images_dir: Path | None = None,
    seal: Seal | None = None,
    **pool: Any,
) -> Litestar:
    """One replica over the database at `url`, whose schema must be current. `pool`: as `connect` takes it."""
    engine = connect(url, **pool)
    store = Store(engine, clocks.steady(engine), preemption_grace=preemption_grace, seal=seal)
    store.transact(stores.ensure)
    wakes = Wakes(url)
    readers = Readers(store, url, **pool)
    readers.open()
    dispatch = Dispatch(store, wakes, networks(webhook_networks))

    @asynccontextmanager
    async def background(app: Litestar) -> AsyncIterator[None]:
        app.state["pulse"] = Pulse(store)
        await asyncio.to_thread(image_places.bring_back_all, app.state["images"])
        working = (wakes.listen(), loop.run(store, wakes), dispatch.run())
        tasks = [asyncio.create_task(work) for work in working]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            store.engine.dispose()
            readers.close()
            await asyncio.to_thread(traces.shutdown)

    return build(
        store,
        wakes,
        readers,
        sockets=[node_link],
        lifespan=[background],
        advertise_url=advertise_url,
        metrics_token=metrics_token,
        state_dir=state_dir,
        sweeps={sweep.name: sweep.every_seconds for sweep in loop.SWEEPS},
        rates=rates,
        oidc=oidc,
        runtime_images_dir=runtime_images_dir,
    )
