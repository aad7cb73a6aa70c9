"""What the database says about itself and about who is connected: for the doctor."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx

APPLICATION = "gpuaas "  # what the name of our connections begins with: then the version, then the server


@dataclass(frozen=True)
class Database:
    version: int
    settings: dict[str, str]
    now: datetime
    size_bytes: int
    connections: int
    most_connections: int
    servers: dict[str, str]  # name of a server: its version
    oldest_transaction_seconds: float


@dataclass(frozen=True)
class NodeClock:
    name: str
    skew_seconds: float


def database(tx: Tx) -> Database:
    one = tx.conn.execute(
        text(
            "SELECT current_setting('server_version_num')::int AS version, clock_timestamp() AS now,"
            " pg_database_size(current_database()) AS size, current_setting('max_connections')::int AS most,"
            " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,"
            " coalesce((SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity"
            "  WHERE datname = current_database() AND pid <> pg_backend_pid()), 0)::float AS oldest"
        )
    ).one()
    wanted = "fsync", "full_page_writes", "synchronous_commit"
    settings = {name: str(tx.conn.execute(text(f"SHOW {name}")).scalar_one()) for name in wanted}
    named = text("SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database()")
    servers = {}
    for name in tx.conn.execute(named).scalars():
        if name.startswith(APPLICATION) and len(parts := name.split()) == 3:
            servers[parts[2]] = parts[1]
    return Database(one.version, settings, one.now, one.size, one.connections, one.most, servers, one.oldest)


def node_clocks(tx: Tx) -> list[NodeClock]:
    """Of nodes that were heard of, the most wrong first."""
    c = t.nodes.c
    statement = t.nodes.select().where(c.clock_skew_seconds.is_not(None), c.state == "ready")
    found = [NodeClock(row.name, row.clock_skew_seconds) for row in tx.conn.execute(statement)]
    return sorted(found, key=lambda clock: -abs(clock.skew_seconds))
