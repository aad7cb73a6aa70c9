"""Old and new servers side by side: a migration only adds, so that what the version before does still works."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, make_url, text

import databases
from gpuaas.control.store import migrate
from gpuaas.control.store.embedded import ROLE, Embedded

NUMBERS = [f"{number:04d}" for number in range(2, int(migrate.head()) + 1)]
# What migrations do that the rule would forbid, and why an old server beside it never notices.
EXCUSED = {
    "0006": {"ck_users_service_never_logs_in": "an old server makes people only, and says nothing of them"},
    "0007": {
        "closed_for_good": "an old server closes an interval once, and changes nothing else of it",
        "kept_for_good": "no server has ever deleted what was counted",
    },
    "0028": {
        "stays": "no server has ever deleted a row of these tables: it disables, releases, removes or retires",
        **{
            f"fk_{table}_operating_mode": "the same combinations as the check that it replaces, and none is allowed"
            for table in ("operations", "events", "audit", "usage")
        },
    },
}

COLUMNS = text(
    "SELECT table_name, column_name, data_type, is_nullable = 'YES' AS nullable,"
    " column_default IS NOT NULL OR is_identity = 'YES' OR is_generated = 'ALWAYS' AS filled"
    " FROM information_schema.columns WHERE table_schema = 'public'"
)
CHECKS = text(
    "SELECT conrelid::regclass::text AS table_name, conname, pg_get_constraintdef(oid) AS said FROM pg_constraint"
    " WHERE contype = 'c' AND connamespace = 'public'::regnamespace"
)
# With the columns that each looks at: one that looks at new columns only sees nothing of what an old server writes.
RULES = text(
    "SELECT conrelid::regclass::text AS table_name, conname, CASE contype WHEN 'c' THEN 'check' ELSE 'foreign key' END"
    " AS kind, ARRAY(SELECT attname::text FROM pg_attribute"
    " WHERE attrelid = conrelid AND attnum = ANY(conkey)) AS looks"
    " FROM pg_constraint WHERE contype IN ('c', 'f') AND connamespace = 'public'::regnamespace"
)
TRIGGERS = text(
    "SELECT tgrelid::regclass::text AS table_name, tgname FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0"
)
UNIQUE = text(
    "SELECT tablename AS table_name, indexname FROM pg_indexes"
    " WHERE schemaname = 'public' AND indexdef LIKE 'CREATE UNIQUE%'"
)


@pytest.fixture
def empty_database_url(postgres: Embedded) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:16]}"
    libpq = make_url(postgres.admin_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as connection:
        statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(ROLE))
        connection.execute(statement)
    yield databases.url_of(postgres.admin_url, name)
    databases.drop(postgres.admin_url, name)


def look(url: str) -> dict[str, Any]:
    engine = create_engine(url)
    with engine.connect() as conn:
        columns = {(row.table_name, row.column_name): row for row in conn.execute(COLUMNS)}
        checks = {(row.table_name, row.conname): row.said for row in conn.execute(CHECKS)}
        unique = {(row.table_name, row.indexname) for row in conn.execute(UNIQUE)}
        rules = {(row.table_name, row.conname): row for row in conn.execute(RULES)}
        triggers = {(row.table_name, row.tgname) for row in conn.execute(TRIGGERS)}
    engine.dispose()
    return {"columns": columns, "checks": checks, "unique": unique, "rules": rules, "triggers": triggers}


def listed(check: str) -> set[str]:
    return set(re.findall(r"'([^']*)'::text", check))


def forbidden(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a server of the version before would trip over."""
    found = []
    tables = {table for table, _ in before["columns"]}
    for key, old in before["columns"].items():
        new = after["columns"].get(key)
        if new is None:
            found.append(f"{key} is gone")
        elif new.data_type != old.data_type:
            found.append(f"{key} is {new.data_type}, and was {old.data_type}")
        elif old.nullable and not new.nullable and not new.filled:
            found.append(f"{key} must be said now")
    for key, new in after["columns"].items():
        if key not in before["columns"] and key[0] in tables and not new.nullable and not new.filled:
            found.append(f"{key} is new, and must be said")
    for key, said in before["checks"].items():
        now = after["checks"].get(key)
        if now is not None and now != said and not listed(said) < listed(now):
            found.append(f"{key} is another check, and not a wider one: {now}")
    for key, rule in sorted(after["rules"].items()):
        old_columns = [name for name in rule.looks if (key[0], name) in before["columns"]]
        if key not in before["rules"] and old_columns:
            found.append(f"{key} is new, and a {rule.kind} on what is written already")
    new_triggers = [key for key in sorted(after["triggers"] - before["triggers"]) if key[0] in tables]
    new_unique = [key for key in sorted(after["unique"] - before["unique"]) if key[0] in tables]
    return [
        *found,
        *(f"{key} is new, and a trigger" for key in new_triggers),
        *(f"{key} is new, and unique" for key in new_unique),
    ]


def test_every_migration_only_adds(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "0001")
    before = look(empty_database_url)
    wrong = {}
    for number in NUMBERS:
        migrate.upgrade(empty_database_url, number)
        after = look(empty_database_url)
        if found := forbidden(before, after):
            wrong[number] = {re.match(r"\('\w+', '(\w+)'\)", what)[1] for what in found}  # type: ignore[index]
        before = after
    assert wrong == {number: set(excuses) for number, excuses in EXCUSED.items()}, "also when one is needed no more"


def test_the_rule_sees_what_it_should(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url)
    before = look(empty_database_url)
    engine = create_engine(empty_database_url)
    broken = [
        "ALTER TABLE projects DROP COLUMN open_network",
        "ALTER TABLE users ALTER COLUMN name TYPE varchar(10)",
        "ALTER TABLE orgs ADD COLUMN needed text NOT NULL",
        "ALTER TABLE nodes ALTER COLUMN inventory SET NOT NULL",
        "ALTER TABLE deliveries DROP CONSTRAINT ck_deliveries_state_known",
        "ALTER TABLE deliveries ADD CONSTRAINT ck_deliveries_state_known CHECK (state IN ('pending', 'dead'))",
        "CREATE UNIQUE INDEX another ON projects (slug)",
        "ALTER TABLE tokens ADD CONSTRAINT narrower CHECK (length(name) < 100)",
        "ALTER TABLE events ADD CONSTRAINT pointing FOREIGN KEY (actor) REFERENCES users (id)",
        "CREATE TRIGGER refusing BEFORE INSERT ON webhooks FOR EACH ROW EXECUTE FUNCTION stays()",
        "ALTER TABLE users ADD COLUMN shoe_size integer CHECK (shoe_size > 0)",
        "DROP TABLE samples",
    ]
    with engine.begin() as conn:
        for statement in broken:
            conn.execute(text(statement))
    engine.dispose()
    said = "\n".join(forbidden(before, look(empty_database_url)))
    for part in ("open_network", "varying", "needed", "inventory", "ck_deliveries", "another", "samples"):
        assert part in said, said
    for part in ("narrower", "pointing", "refusing"):
        assert part in said, said
    assert "shoe_size" not in said, "nobody who does not know the column trips over it"


def test_an_older_server_starts_and_works_over_a_newer_schema(database_url: str) -> None:
    """As far as one version can show it: the number is ahead, and everything that it knows is there."""
    engine = create_engine(database_url)
    with engine.begin() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        assert migrate.fits(conn)
    migrate.upgrade(database_url)
    with engine.connect() as conn:
        assert migrate.current(conn) == "9999", "an older server leaves the number alone"
        conn.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        assert not migrate.fits(conn)
    engine.dispose()
