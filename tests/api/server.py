"""Replicas for tests: real sockets, real threads, as many as a test wants over one database."""

import atexit
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from gpuaas.control.config import NO_RATES
from gpuaas.control.http.one_write import OneWrite
from gpuaas.control.main import application
from gpuaas.control.store.transaction import Store

IMAGES = Path(tempfile.mkdtemp(prefix="gpuaas-test-images-"))  # all replicas share it, as they must
atexit.register(shutil.rmtree, IMAGES, ignore_errors=True)


class Replica:
    def __init__(self, database_url: str, **config: Any) -> None:
        self.app = application(database_url, **{"rates": NO_RATES, "runtime_images_dir": IMAGES, **config})
        self.store: Store = self.app.state.store
        self.url = ""


@contextmanager
def serve(database_url: str, **config: Any) -> Iterator[Replica]:
    """One server over the database, on a port of its own, with everything that `gpuaas server` runs."""
    replica = Replica(database_url, **config)
    config = uvicorn.Config(
        replica.app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        http=OneWrite,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    replica.url = f"http://127.0.0.1:{port}"
    try:
        yield replica
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"
