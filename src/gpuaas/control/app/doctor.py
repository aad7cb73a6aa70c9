"""`gpuaas admin doctor`: is this installation well, and if not, what to do. Looks only, changes nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuaas.control.app import access
from gpuaas.control.store import deliveries, fleet, installation, migrate, runtime_bundles, webhooks
from gpuaas.control.store.installation import Database
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.clock import Clock
from gpuaas.model.finding import Finding, fail, good, warn
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import NODE, SLOT
from gpuaas.model.runtime import RuntimeBundle

OLDEST_POSTGRESQL = 150000
SKEW_SECONDS = 2.0  # leases and orders of reports bear more; people who compare logs do not
BAD_SKEW_SECONDS = 60.0
LONG_TRANSACTION_SECONDS = 300.0
QUEUED_LONG = timedelta(hours=1)
FULL_PERCENT, NEARLY_FULL_PERCENT = 95, 85
MANY_PENDING = 1000


@dataclass(frozen=True)
class Process:
    """What only the server that was asked knows about itself."""

    version: str
    advertise_url: str
    sweeps: dict[str, tuple[float, float | None]]  # how often it should run, and when it last did, in seconds
    disk_path: str
    disk_percent: float
    pool_size: int
    pool_used: int
    has_image: Callable[[RuntimeBundle], bool] = lambda bundle: True


def examine(tx: Tx, caller: Caller, process: Process, clock: Clock, agrees: bool = True) -> list[Finding]:
    """`clock`: of the machine, which need not be the time that the server works with. `agrees`: since it started."""
    access.on_platform(tx, caller, "platform.doctor")
    before = clock.now()
    database = installation.database(tx)
    between = before + (clock.now() - before) / 2
    return [
        *_database(tx, database),
        _clock(database, between, agrees),
        *_servers(database, process),
        *_sweeps(process),
        _disk(process),
        *_nodes(tx),
        *_backlog(tx),
        _secrets(tx),
        _images(tx, process),
    ]


def _images(tx: Tx, process: Process) -> Finding:
    """A node that does not have one yet would wait for it for ever."""
    published = runtime_bundles.visible(tx, None, ("published",))
    missing = [bundle.name for bundle in published if not process.has_image(bundle)]
    if not missing:
        return good("runtimes", f"{len(published)} published")
    listed = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    remedy = "Share --runtime-images between all servers, or send them again: `gpuaas runtime deploy`."
    return fail("runtimes", f"{len(missing)} without an image", f"This server does not have: {listed}.", remedy)


def _database(tx: Tx, found: Database) -> Iterator[Finding]:
    version = f"PostgreSQL {found.version // 10000}.{found.version % 10000}"
    if found.version < OLDEST_POSTGRESQL:
        yield fail("database", version, "It is too old.", "Move to PostgreSQL 15 or newer.")
    else:
        yield good("database", f"{version}, {found.size_bytes // 2**20} MiB")
    schema = migrate.current(tx.conn) or "none"
    if schema < migrate.head():
        yield fail("schema", schema, f"This server needs {migrate.head()}.", "Restart this server: it migrates.")
    elif schema > migrate.head():
        text = f"Newer servers have migrated the database; this one knows {migrate.head()}."
        yield warn("schema", schema, text, "Finish the upgrade: replace this server too.")
    else:
        yield good("schema", schema)
    off = [name for name, value in found.settings.items() if value == "off"]
    if off:
        lost = f"{', '.join(off)} is off: what was acknowledged can be lost when the power fails."
        yield fail("durability", "not durable", lost, f"Set {' = on, '.join(off)} = on in postgresql.conf and reload.")
    else:
        yield good("durability", "fsync, full_page_writes and synchronous_commit are on")
    used = f"{found.connections} of {found.most_connections}"
    if found.connections > 0.9 * found.most_connections:
        yield warn("connections", used, "PostgreSQL is nearly out of connections.",
                   "Raise max_connections, or run fewer servers.")  # fmt: skip
    else:
        yield good("connections", used)
    if found.oldest_transaction_seconds > LONG_TRANSACTION_SECONDS:
        open_for = f"{found.oldest_transaction_seconds:.0f} s"
        yield warn("long transaction", open_for, "Somebody keeps a transaction open; locks and old rows stay.",
                   "Look for it in pg_stat_activity and end it.")  # fmt: skip


def _clock(found: Database, now: datetime, agrees: bool) -> Finding:
    skew = (found.now - now).total_seconds()
    said = f"{skew:+.1f} s against the database"
    if not agrees:
        return fail("clock", said, "The database's clock jumped since this server started: leases are on hold.",
                    "Set the database's clock right, or start all servers anew if it is right now.")  # fmt: skip
    if abs(skew) > SKEW_SECONDS:
        return warn("clock", said, "This server and its database disagree about the time.", "Run NTP on both.")
    return good("clock", said)


def _servers(found: Database, process: Process) -> Iterator[Finding]:
    versions = sorted(set(found.servers.values()))
    said = f"{len(found.servers)} connected, {', '.join(versions) or process.version}"
    if len(versions) > 1:
        yield warn("servers", said, "Servers of different versions run side by side.", "Finish the upgrade.")
    else:
        yield good("servers", said)
    if len(found.servers) > 1 and not process.advertise_url:
        yield warn("advertise-url", "not set", "With several servers, nodes cannot dial back to exactly this one: "
                   "`gpuaas ssh --via-server` fails for users who are connected here.",
                   "Start each server with --advertise-url, an address of its own that nodes reach.")  # fmt: skip
    if process.pool_used >= process.pool_size:
        yield warn("pool", f"{process.pool_used} of {process.pool_size}", "Every connection of this server is in use.",
                   "Requests wait, then get 503. Add a server, or find what is slow.")  # fmt: skip


def _sweeps(process: Process) -> Iterator[Finding]:
    late = {
        name: age for name, (every, age) in process.sweeps.items() if age is None or age > max(10 * every, every + 60)
    }
    if not late:
        yield good("sweeps", f"{len(process.sweeps)} run on time")
    for name, age in late.items():
        said = "never" if age is None else f"{age:.0f} s ago"
        yield warn(f"sweep {name}", said, "It has not run to its end for too long on this server.",
                   f"Look for 'the sweep {name} failed' in this server's log.")  # fmt: skip


def _disk(process: Process) -> Finding:
    said = f"{process.disk_percent:.0f} % of {process.disk_path}"
    if process.disk_percent >= FULL_PERCENT:
        return fail("disk", said, "The server's disk is full.", "Make room: logs, old dumps, the embedded database.")
    if process.disk_percent >= NEARLY_FULL_PERCENT:
        return warn("disk", said, "The server's disk is nearly full.", "Make room before it is.")
    return good("disk", said)


def _nodes(tx: Tx) -> Iterator[Finding]:
    states, slots = fleet.by_state(tx, NODE), fleet.by_state(tx, SLOT)
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    if lost := states.get("lost", 0):
        yield warn("nodes", said, f"{lost} are silent.", "`gpuaas node ls` names them: look at their agents.")
    elif not states:
        yield warn("nodes", said, "There is no node to run machines on.", "`gpuaas node join-token` lets one join.")
    else:
        yield good("nodes", said)
    if bad := slots.get("quarantined", 0):
        yield warn("slots", f"{bad} quarantined", "They are given to nobody.",
                   "`gpuaas node show NODE` says why; repair, then `gpuaas node return NODE SLOT`.")  # fmt: skip
    if waiting := slots.get("proposed", 0):
        yield warn("slots", f"{waiting} proposed", "They are given to nobody until they are approved.",
                   "Look at them with `gpuaas node show NODE`, then `gpuaas node approve NODE`.")  # fmt: skip
    wrong = [one for one in installation.node_clocks(tx) if abs(one.skew_seconds) > SKEW_SECONDS]
    if wrong:
        named = ", ".join(f"{one.name} {one.skew_seconds:+.0f} s" for one in wrong[:5])
        finding = fail if abs(wrong[0].skew_seconds) > BAD_SKEW_SECONDS else warn
        yield finding("node clocks", named, f"{len(wrong)} nodes disagree with the server about the time.",
                      "Run NTP on them.")  # fmt: skip
    else:
        yield good("node clocks", f"within {SKEW_SECONDS:.0f} s")


def _secrets(tx: Tx) -> Finding:
    bare = webhooks.unsealed(tx)
    if not tx.seal.has_key:
        return warn("secrets", "not sealed", "Whoever reads the database can sign what webhooks send.",
                    "Start every server with the same --secrets-key-file, then rotate them.")  # fmt: skip
    if bare:
        return warn("secrets", f"{bare} not sealed", "They are older than the key.", "`gpuaas webhook rotate NAME`.")
    return good("secrets", "sealed")


def _backlog(tx: Tx) -> Iterator[Finding]:
    queued, oldest = fleet.queue(tx)
    said = f"{queued} queued"
    if oldest is not None and tx.now - oldest > QUEUED_LONG:
        yield warn("queue", said, f"The oldest launch waits since {oldest:%Y-%m-%d %H:%M} UTC.",
                   "`gpuaas plan --offer OFFER` says what is missing: nodes, approved slots, or quota.")  # fmt: skip
    else:
        yield good("queue", said)
    pending, lag = deliveries.pending(tx), webhooks.lag(tx)
    said = f"{pending} pending, {lag} more in the feeds"
    if pending + lag > MANY_PENDING:
        yield warn("webhooks", said, "Targets are slow or away.",
                   "`gpuaas webhook deliveries WEBHOOK --state pending` says what they answer.")  # fmt: skip
    else:
        yield good("webhooks", said)
