"""Bringing a database to the schema of this version. Safe to run from several replicas at once.

Alembic is imported when there is something to do: it takes 12 MB, and a second of the start.
"""

import logging
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, create_engine, text

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK = 7_201_934  # one migration at a time per database
OLDEST = 150000


def upgrade(url: str, to: str = "head") -> None:
    engine = create_engine(url)
    try:
        with engine.begin() as conn:
            version = conn.execute(text("SHOW server_version_num")).scalar_one()
            if int(version) < OLDEST:
                raise SystemExit(f"PostgreSQL 15 or newer is needed; this server says {version}.")
            conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            if is_ahead(conn):
                log.warning("the database was migrated by a newer server; this one works with what it knows of it")
                return
            if to == "head" and _is_set_up(conn) and current(conn) == head():
                return
            _run(conn, to)
    finally:
        engine.dispose()


@cache
def head() -> str:
    """The chain is linear and numbered without a gap, which `make check` sees to."""
    return max(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def _run(conn: Connection, to: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = conn
    command.upgrade(config, to)


def is_ahead(conn: Connection) -> bool:
    """Whether a newer server has migrated it. Migrations only add, so that older servers work on until they go."""
    return _is_set_up(conn) and (current(conn) or "") > head()


def _is_set_up(conn: Connection) -> bool:
    return conn.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is not None


def fits(conn: Connection) -> bool:
    """Whether this server can work with the schema: its own, or one that was added to since."""
    return (current(conn) or "") >= head()


def current(conn: Connection) -> str | None:
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
