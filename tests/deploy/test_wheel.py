"""The wheel in a clean environment: built, installed, and a server started from it."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from gpuaas import __version__

ROOT = Path(__file__).parents[2]


def uv() -> str:
    """As scripts/setup finds it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = shutil.which("uv") or str(base / "gpuaas" / "uv" / "bin" / "uv")
    assert Path(found).exists(), "there is no uv: run `make setup`"
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_runs_from_a_wheel_in_a_clean_environment(tmp_path: Path, database_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUAAS_", "VIRTUAL_ENV"))}
    environment |= {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    run(uv(), "build", "--quiet", "--wheel", "--out-dir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.stat().st_size < 5 * 2**20
    run(uv(), "venv", "--quiet", tmp_path / "clean")
    python, program = tmp_path / "clean" / "bin" / "python", tmp_path / "clean" / "bin" / "gpuaas"
    run(uv(), "pip", "install", "--quiet", "--python", python, wheel)
    assert run(program, "--version").strip() == f"gpuaas {__version__}"
    where = run(python, "-c", "import gpuaas.cli.agent_join as found; print(found._unit())").strip()
    assert where.startswith(str(tmp_path / "clean")), "the unit must come from the wheel, not from a checkout"
    shown = run(program, "runtime", "info", "python:3.11+ml", "--recipe")
    assert "scikit-learn" in shown, "the recipes must be in the wheel"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(tmp_path / "server.log", "w") as log:
        command = [program, "server", "--port", str(port), "--state-dir", tmp_path]
        server = subprocess.Popen(command, env={**environment, "GPUAAS_DATABASE_URL": database_url}, stderr=log)
    try:
        until = time.monotonic() + 60
        while not _ready(port):
            assert server.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
            assert time.monotonic() < until
            time.sleep(0.1)
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/asyncapi.json").status_code == 200
    finally:
        server.terminate()
        server.wait(20)


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False
