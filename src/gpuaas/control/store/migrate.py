"""Bringing a database to the schema of this version. Safe to run from several replicas at once."""

import logging
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK = 7_201_934  # one migration at a time per database
OLDEST = 150000


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


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
            config = _config()
            config.attributes["connection"] = conn
            command.upgrade(config, to)
    finally:
        engine.dispose()


@cache
def head() -> str:
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def is_ahead(conn: Connection) -> bool:
    """Whether a newer server has migrated it. Migrations only add, so that older servers work on until they go."""
    if conn.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
        return False
    return (current(conn) or "") > head()


def fits(conn: Connection) -> bool:
    """Whether this server can work with the schema: its own, or one that was added to since."""
    return (current(conn) or "") >= head()


def current(conn: Connection) -> str | None:
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
