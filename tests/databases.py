"""Throw-away databases for tests: one forgetful server, a template that is migrated once, a clone per test.

Usable without pytest: `with server() as running: ...`. URLs in and out are SQLAlchemy's.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from gpuaas.control.store.embedded import ROLE, SUPERUSER, Embedded

_PREFIX = "gpuaas-test-"
_ROOM_BYTES = 2 * 1024**3


def new_directory() -> Path:
    """For the server of a test run that this process leads. Not in pytest's tree, which is closed to other accounts."""
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_base()))
    directory.chmod(0o711)
    return directory


def _base() -> Path:
    """In memory where there is room (and programs may run): a clone took 14 ms there, and 40 to 450 ms on ext4."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM_BYTES
    if roomy and not os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return memory
    return Path(tempfile.gettempdir())


@contextmanager
def server() -> Iterator[Embedded]:
    """A server for the time of the block."""
    remove_abandoned()
    directory = new_directory()
    try:
        running = Embedded(directory, durable=False)
        running.start()
        yield running
    finally:
        remove(directory)


def remove(directory: Path) -> None:
    """Stops the server below `directory`, if one runs, and deletes everything."""
    Embedded(directory).stop()
    shutil.rmtree(directory)


def remove_abandoned() -> None:
    """Ends what killed test runs left behind."""
    for directory in _base().glob(f"{_PREFIX}*"):
        leader = directory.name.removeprefix(_PREFIX).split("-")[0]
        if directory.lstat().st_uid == os.geteuid() and not Path(f"/proc/{leader}").exists():
            remove(directory)


def make_template(running: Embedded, name: str, migrate: Callable[[str], None]) -> str:
    """Makes the template once, however many processes ask at the same time. Returns its name."""
    with open(running.directory / f"{name}.lock", "w") as lock, _connect(running.admin_url) as connection:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            partial = f"{name}_partial"
            drop(running.admin_url, partial)
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(partial), sql.Identifier(ROLE))
            )
            migrate(url_of(running.admin_url, partial))
            connection.execute(
                sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(partial), sql.Identifier(name))
            )
    return name


def clone(admin_url: str, template: str, name: str) -> str:
    """Makes database `name` as a copy of `template`, owned by the product's role. Returns its URL."""
    # FILE_COPY: 14 ms against 21 ms for WAL_LOG; its two checkpoints cost nothing without fsync.
    statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY FILE_COPY")
    with _connect(admin_url) as connection:
        connection.execute(statement.format(*map(sql.Identifier, (name, ROLE, template))))
    return url_of(admin_url, name)


def drop(admin_url: str, name: str) -> None:
    """Drops the database if it is there, and cuts whoever is still connected."""
    with _connect(admin_url) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def url_of(admin_url: str, name: str) -> str:
    """The same server, another database, the product's role."""
    url = make_url(admin_url)
    role = ROLE if url.username == SUPERUSER else url.username
    return url.set(database=name, username=role).render_as_string(hide_password=False)


def _connect(url: str) -> psycopg.Connection:
    libpq = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(libpq, autocommit=True)
