"""Which server framework: the same typed read and typed write on a bare ASGI app, Litestar + msgspec and FastAPI.

Prints requests per second (one worker, 32 keep-alive connections), start-up time and memory. The bare app is the floor:
it parses nothing and sends prepared bytes. See docs/decisions/0001-server-framework.md.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

CONNECTIONS = 32
SECONDS = 3.0
ROUNDS = 3
BODY = json.dumps({"name": "train-1", "offer": "h100-1", "count": 2, "wait": True}).encode()
REQUESTS = {
    "list": b"GET /items HTTP/1.1\r\nhost: x\r\n\r\n",
    "submit": b"POST /items HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    % (len(BODY), BODY),
}
ROWS = [{"id": f"al-{n:016d}", "name": f"m-{n}", "state": "active", "generation": n} for n in range(50)]


def floor() -> object:
    page, accepted = json.dumps({"items": ROWS}).encode(), BODY

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            return
        if scope["method"] == "POST":
            await receive()
        body = page if scope["method"] == "GET" else accepted
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    return app


def litestar() -> object:
    import msgspec
    from litestar import Litestar, get, post

    class Item(msgspec.Struct):
        id: str
        name: str
        state: str
        generation: int

    class Page(msgspec.Struct):
        items: list[Item]

    class Launch(msgspec.Struct, forbid_unknown_fields=True):
        name: str
        offer: str
        count: int = 1
        wait: bool = False

    @get("/items", sync_to_thread=False)
    def read() -> Page:
        return Page([Item(**row) for row in ROWS])

    @post("/items", sync_to_thread=False, status_code=200)
    def write(data: Launch) -> Launch:
        return data

    # The annotations are local names; Litestar resolves them in the handlers' globals.
    globals().update(Item=Item, Page=Page, Launch=Launch)
    return Litestar([read, write])


def fastapi() -> object:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Item(BaseModel):
        id: str
        name: str
        state: str
        generation: int

    class Page(BaseModel):
        items: list[Item]

    class Launch(BaseModel, extra="forbid"):
        name: str
        offer: str
        count: int = 1
        wait: bool = False

    app = FastAPI()

    @app.get("/items")
    async def read() -> Page:
        return Page(items=[Item(**row) for row in ROWS])

    @app.post("/items")
    async def write(data: Launch) -> Launch:
        return data

    return app


APPS = {"floor": floor, "litestar": litestar, "fastapi": fastapi}


def serve(name: str, port: int) -> None:
    import uvicorn

    uvicorn.run(APPS[name](), port=port, log_level="error", access_log=False)  # type: ignore[arg-type]


async def _hammer(port: int, request: bytes, deadline: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    done = 0
    while time.monotonic() < deadline:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200"), head
        done += 1
    writer.close()
    return done


async def _rate(port: int, request: bytes) -> float:
    deadline = time.monotonic() + SECONDS
    counts = await asyncio.gather(*(_hammer(port, request, deadline) for _ in range(CONNECTIONS)))
    return sum(counts) / SECONDS


def measure(name: str) -> dict[str, float]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, __file__, name, str(port)])
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/items").read()
                break
            except OSError:
                time.sleep(0.01)
        result = {"start s": time.monotonic() - started}
        for kind, request in REQUESTS.items():
            result[f"{kind}/s"] = asyncio.run(_rate(port, request))
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        result["rss MB"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return result
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    rounds = {name: [measure(name) for _ in range(ROUNDS)] for name in APPS}
    medians = {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in rounds.items()}
    print(f"{'':10}" + "".join(f"{key:>12}" for key in medians["floor"]) + f"{'list/floor':>12}{'submit/floor':>14}")
    for name, row in medians.items():
        ratios = [row[key] / medians["floor"][key] for key in ("list/s", "submit/s")]
        print(
            f"{name:10}" + "".join(f"{value:12.2f}" for value in row.values()) + f"{ratios[0]:12.2f}{ratios[1]:14.2f}"
        )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        main()
