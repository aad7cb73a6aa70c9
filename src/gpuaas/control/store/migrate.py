"""Bringing a database to the schema of this version. Safe to run from several replicas at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK = 7_201_934  # one migration at a time per database
OLDEST = 150000


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def upgrade(url: str) -> None:
    engine = create_engine(url)
    try:
        with engine.begin() as conn:
            version = conn.execute(text("SHOW server_version_num")).scalar_one()
            if int(version) < OLDEST:
                raise SystemExit(f"PostgreSQL 15 or newer is needed; this server says {version}.")
            conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            config = _config()
            config.attributes["connection"] = conn
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def head() -> str:
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def current(conn: Connection) -> str | None:
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
