"""A whole `gpuaas up` of its own on this machine, for as long as a bench needs it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuaas.sdk import Client

IMAGES = Path("/var/cache/gpuaas-test/images")


@dataclass(frozen=True)
class Up:
    url: str
    token: str
    key: Path  # the private half of the key that opens every machine
    agent: int  # its pid
    state: Path

    def client(self) -> Client:
        return Client(self.url, self.token, timeout_seconds=60.0)


def modelled(directory: Path, port: int, simulate_gpus: str) -> AbstractContextManager[Up]:
    """The same with machines that are only data: for what concerns the server alone."""
    return up(directory, port, simulate_gpus, host="modelled")


@contextmanager
def up(directory: Path, port: int, simulate_gpus: str, host: str = "linux") -> Iterator[Up]:
    """Everything of it is below `directory`, also the login and the SSH key of whoever is using it."""
    home, state = directory / "home", directory / "state"
    home.mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUAAS_", "XDG_"))}
    environment = {**kept, "HOME": str(home), "GPUAAS_TOKEN_RATE": "0"}  # one user asks as fast as they are answered
    started = ["up", "--port", str(port), "--simulate-gpus", simulate_gpus, "--no-first", "--host", host]
    started += ["--image-store", str(IMAGES)] if host == "linux" else []
    try:
        _cli(environment, *started, "--state-dir", str(state))
        account = json.loads((home / ".config/gpuaas/config.json").read_text())["accounts"]
        agent = json.loads((state / "agent.pid").read_text())["pid"]
        url = f"http://127.0.0.1:{port}"
        yield Up(url, account[url]["token"], home / ".ssh/id_ed25519", agent, state)
    finally:
        _cli(environment, "down", "--purge", "--yes", "--state-dir", str(state))


def image() -> Path:
    """The tree that machines are made from; built by the first `up` on this machine."""
    return next(IMAGES.glob("*/rootfs"))


def release_all(client: Client, timeout_seconds: float = 120.0) -> None:
    for allocation in list(client.allocations.list()):
        if "release" in allocation.allowed_actions:
            client.allocations.release(allocation.id, confirm=allocation.name)
    deadline = time.monotonic() + timeout_seconds
    while any(True for _ in client.allocations.list()):
        if time.monotonic() > deadline:
            raise TimeoutError("the machines are not released")
        time.sleep(0.2)


def _cli(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "gpuaas.cli.main", *arguments]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"gpuaas {arguments[0]}: {done.stderr.strip()[-2000:]}")
