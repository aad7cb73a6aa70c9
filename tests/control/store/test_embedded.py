"""The embedded server as `gpuaas up` uses it: who may connect, what survives a kill, what is left afterwards."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import databases
from gpuaas.control.store.embedded import Embedded, _package
from gpuaas.kit.errors import Problem

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def directory() -> Iterator[Path]:
    made = databases.new_directory()  # pytest's tmp_path is closed to the server's account
    yield made
    databases.remove(made)


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def show(url: str, setting: str) -> str:
    with connect(url) as connection:
        row = connection.execute(f"SHOW {setting}").fetchone()
    assert row is not None
    return str(row[0])


def server_processes(directory: Path) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if os.readlink(process / "cwd").startswith(str(directory)):
                    found.append(int(process.name))
            except OSError:
                continue  # it ended, or is a stranger's
    return found


def test_start_stop_start_keeps_the_data_and_leaves_no_process(directory: Path) -> None:
    server = Embedded(directory)
    url = server.start()
    with connect(url) as connection:
        connection.execute("CREATE TABLE kept (id int)")
    server.stop()
    assert server_processes(directory) == []
    server.stop()  # nothing runs: nothing to do
    assert server.start() == url
    with connect(url) as connection:
        connection.execute("SELECT * FROM kept")


def test_product_use_is_durable_and_tests_are_not(directory: Path, postgres: Embedded) -> None:
    url = Embedded(directory).start()
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert show(url, setting) == "on"
        assert show(postgres.admin_url, setting) == "off"
    assert show(url, "listen_addresses") == ""


def test_our_role_is_no_superuser(directory: Path) -> None:
    with connect(Embedded(directory).start()) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")


def test_a_killed_starter_leaves_a_server_that_the_next_start_adopts(directory: Path) -> None:
    program = (
        "import os, pathlib, sys; from gpuaas.control.store.embedded import Embedded;"
        "Embedded(pathlib.Path(sys.argv[1])).start(); os.kill(os.getpid(), 9)"
    )
    starter = subprocess.run([sys.executable, "-c", program, directory], check=False)
    assert starter.returncode == -signal.SIGKILL
    before = (directory / "data" / "postmaster.pid").read_text()
    Embedded(directory).start()
    assert (directory / "data" / "postmaster.pid").read_text() == before


def test_a_killed_server_is_started_again(directory: Path) -> None:
    server = Embedded(directory)
    url = server.start()
    os.kill(int((directory / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    assert server.start() == url
    assert show(url, "fsync") == "on"


def test_a_half_made_database_is_made_again(directory: Path) -> None:
    (directory / "data.partial").mkdir()
    (directory / "data.partial" / "PG_VERSION").write_text("18")
    assert show(Embedded(directory, durable=False).start(), "fsync") == "off"


def test_a_long_path_moves_the_socket_to_a_closed_directory(directory: Path) -> None:
    long = directory / ("x" * 100)
    server = Embedded(long, durable=False)
    try:
        show(server.start(), "fsync")
        assert not server.socket_directory.is_relative_to(long)
        assert server.socket_directory.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()
    shutil.rmtree(server.socket_directory)


@as_root
@pytest.mark.root
def test_other_accounts_cannot_connect(directory: Path) -> None:
    server = Embedded(directory, durable=False)
    server.start()
    assert "Permission denied" in connect_as_nobody(server.admin_url)
    # Even were the directory open: two locks, not one.
    server.socket_directory.chmod(0o755)
    (server.socket_directory / ".s.PGSQL.5432").chmod(0o777)
    assert "Peer authentication failed" in connect_as_nobody(server.admin_url)


def connect_as_nobody(url: str) -> str:
    """What the server said. Forks, because another account may not be able to start this interpreter."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        said = "connected"
        try:
            connect(url)
        except psycopg.OperationalError as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as output:
        return output.read()


@as_root
@pytest.mark.root
def test_binaries_below_a_closed_home_are_copied(directory: Path, tmp_path: Path) -> None:
    package = _package()
    for part in (f"{package.name}/pginstall18", f"{package.name}.libs"):
        shutil.copytree(package.parent / part, tmp_path / part)
    (tmp_path / package.name / "__init__.py").touch()
    tmp_path.chmod(0o700)
    program = (
        "import pathlib, sys; from gpuaas.control.store.embedded import Embedded;"
        "Embedded(pathlib.Path(sys.argv[1]), durable=False).start()"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program, directory], env=environment, check=True)
    assert (directory / "install-18").is_dir()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@as_root
@pytest.mark.root
def test_an_unreachable_directory_is_refused_with_a_hint(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(Problem) as refused:
        Embedded(tmp_path / "db").start()
    assert "/var/lib/gpuaas" in refused.value.hint
