"""One transaction: what it did, who asked, and what everybody is told when it commits.

Events and audit entries are collected and written last, in one fixed order (projects, then orgs, each sorted), so
that the counters they lock are held briefly and two transactions never wait for each other in a circle. Locks are
taken in this order everywhere: token, user, membership, keys, allocation, place in the line, quota, reservation, node,
capacity, webhook, project counter, org counter. Several of a kind are locked by id. Claims and slots need no place in
it: claims are made under their node's lock only, and nobody waits for a slot's row while holding another. Row locks are
FOR NO KEY UPDATE: a plain FOR UPDATE would wait for everybody who inserts a row that points here, and they for us: a
deadlock.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import pq
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gpuaas import __version__
from gpuaas.control.store.exchange import Answer, Asked, Exchange
from gpuaas.control.store.meters import METERS
from gpuaas.kit import traces
from gpuaas.kit.clock import Clock, SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import Ids
from gpuaas.kit.meters import HISTOGRAM, Meters
from gpuaas.kit.seal import Seal
from gpuaas.model.event import is_event

log = logging.getLogger(__name__)
T = TypeVar("T")
Lent = Callable[[], AbstractContextManager[Connection]]  # a connection, for a while

SYSTEM = "system"
PLATFORM_ORG = "platform"  # slug of the org that platform-wide audit entries belong to
CHANNEL = "gpuaas"
RETRIED = {"40001", "40P01"}  # serialization failure, deadlock: nothing happened, run it again
ATTEMPTS = 5
PREEMPTION_GRACE = timedelta(minutes=5)  # where the operators have not said otherwise
SEEN = "%(projects)s"  # where a statement names the projects that its caller sees
_NOTIFY = "SELECT pg_notify(%(channel)s, topic) FROM unnest(%(topics)s::text[]) AS topic"


class Carefully(Exception):
    """Raised by what holds a lock that it must give back and cannot: run it again, with attempts (`Tx.attempt`)."""


@dataclass(frozen=True)
class Later:
    """A statement that nobody waits for, and what its answer must be."""

    statement: str
    values: Mapping[str, Any] | None
    check: Callable[[Answer], None] | None = None


@dataclass(frozen=True)
class Along:
    """A question about all that its caller sees, to be asked together with who they are (store/tokens.py)."""

    question: tuple[Any, ...]  # whoever asks the same later has the answer already
    statement: str  # with SEEN where the projects are
    values: Mapping[str, Any]
    columns: int


@dataclass(frozen=True)
class Came:
    """Its answer, which holds for exactly these projects."""

    question: tuple[Any, ...]
    project_ids: frozenset[str]
    rows: list[tuple[Any, ...]]


@dataclass
class Tx:
    connection: Connection
    now: datetime
    ids: Ids
    actor: str = SYSTEM
    correlation_id: str | None = None
    authorized: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    preemption_grace: timedelta = PREEMPTION_GRACE  # how long a machine has that is told to give way
    seal: Seal = field(default_factory=Seal)
    careful: bool = False  # what may have to be taken back is an attempt
    reads: bool = False  # and nothing else: what was read once is still so
    remembered: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)  # where it reads only
    along: Along | None = None  # where it reads only
    came: Came | None = None
    break_glass: dict[str, str] = field(default_factory=dict)  # by org: what gives the actor rights there
    _measured: list[tuple[str, float, dict[str, str]]] = field(default_factory=list)
    _traced: list[tuple[str, str | None, float, float, dict[str, Any]]] = field(default_factory=list)
    _events: list[dict[str, Any]] = field(default_factory=list)
    _audit: list[dict[str, Any]] = field(default_factory=list)
    _last: dict[str, "Callable[[Tx], None]"] = field(default_factory=dict)
    _later: list[Later] = field(default_factory=list)
    _refusals: dict[str, Exception] = field(default_factory=dict)  # by the name of the constraint

    @property
    def conn(self) -> Connection:
        """For statements in SQLAlchemy: what was put off is sent before them."""
        if self._later:
            self._send()
        return self.connection

    def last(self, key: str, work: "Callable[[Tx], None]") -> None:
        """To be done once, when all else is: before the events, in the order of the keys."""
        self._last[key] = work

    def emit(self, type: str, /, *, org_id: str, project_id: str, kind: str, id: str, **data: Any) -> None:
        """One event in the project's feed. A type that no document lists does not commit."""
        if not is_event(type):
            raise AssertionError(f"say in model/event.py what an event of type {type!r} is")
        data = self._under_break_glass(org_id, data)
        self._events.append(
            {
                "org_id": org_id,
                "project_id": project_id,
                "type": type,
                "object_kind": kind,
                "object_id": id,
                "actor": self.actor,
                "data": data,
                "at": self.now,
                "correlation_id": self.correlation_id,
            }
        )

    def audit(
        self, action: str, /, *, org_id: str, kind: str, id: str, project_id: str | None = None, **data: Any
    ) -> None:
        """One entry in the org's audit chain: exactly one per mutation."""
        data = self._under_break_glass(org_id, data)
        self._audit.append(
            {
                "org_id": org_id,
                "project_id": project_id,
                "action": action,
                "object_kind": kind,
                "object_id": id,
                "actor": self.actor,
                "data": data,
                "at": self.now,
                "correlation_id": self.correlation_id,
            }
        )

    def _under_break_glass(self, org_id: str, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "break_glass": self.break_glass[org_id]} if org_id in self.break_glass else data

    def wake(self, topic: str) -> None:
        """Tell listeners after the commit that there is something to look at. A hint: the truth is in the tables."""
        self.topics.add(topic)

    def post(self, topic: str, message: str) -> None:
        """Tell whoever reads the topic's mail, after the commit. Nothing is kept: for what is worth nothing later."""
        self.topics.add(f"{topic} {message}")

    def measure(self, name: str, value: float, **labels: str) -> None:
        """For store/meters.py, once it is committed: what is rolled back did not happen."""
        self._measured.append((name, value, labels))

    def trace(self, name: str, correlation_id: str | None, started: float, ended: float, **said: str | int) -> None:
        """For whoever collects traces, once it is committed."""
        if traces.enabled():
            self._traced.append((name, correlation_id, started, ended, said))

    def expect_one_audit_entry(self) -> None:
        """A mutation that leaves none (or several) does not commit."""
        if len(self._audit) != 1:
            raise AssertionError(f"{len(self._audit)} audit entries for one mutation: {self._audit}")

    def expect_nothing_written(self) -> None:
        """What only looks leaves nothing to tell of."""
        if self._events or self._audit or self._last or self.topics:
            raise AssertionError(f"a look that changed something: {self._events} {self._audit} {self.topics}")

    @property
    def audited_project(self) -> str | None:
        """Where the mutation of this transaction belongs, if that is a project."""
        found: str | None = self._audit[0]["project_id"] if self._audit else None
        return found

    def run(self, statement: str, values: Mapping[str, Any] | None = None) -> Answer:
        """A statement in SQL, straight to the driver: for what runs in every launch.

        SQLAlchemy would cost five times as much as sending it does. Errors come out as SQLAlchemy's all the same.
        """
        return self._send(Later(statement, values))[0]

    def together(self, *asked: tuple[str, Mapping[str, Any]]) -> list[list[tuple[Any, ...]]]:
        """Several statements in this order, in one round trip; the rows of each."""
        return [cursor.fetchall() for cursor in self._send(*(Later(*each) for each in asked))]

    def later(
        self,
        statement: str,
        values: Mapping[str, Any] | None = None,
        check: Callable[[Answer], None] | None = None,
    ) -> None:
        """A write whose answer nobody waits for: it travels with the next statement, or with the commit.

        `check` looks at the answer then, before anything is committed.
        """
        self._later.append(Later(statement, values, check))

    def means(self, constraint: str, refusal: Exception) -> None:
        """What is raised when this constraint refuses anything from now on. What was said first holds."""
        self._refusals.setdefault(constraint, refusal)

    def _send(self, *asked: Later) -> list[Answer]:
        waiting, self._later = self._later, []
        every = [*waiting, *asked]
        answers = self._exchange(every)
        for each, answer in zip(every, answers, strict=True):
            if each.check:
                each.check(answer)
        return answers[len(waiting) :]

    def commit(self) -> None:
        """With whatever is still to be sent, in one round trip; and wakes listeners when that is done."""
        if any(each.check for each in self._later):
            self._send()
        # NOTIFY inside the writing transaction would make every commit of the database wait for one lock. After it, it
        # may be lost with a crash, which is fine: topics are hints.
        told = (_NOTIFY, {"channel": CHANNEL, "topics": sorted(self.topics)}) if self.topics else None
        waiting, self._later = self._later, []
        driver: Any = self.connection.connection.driver_connection
        if waiting or told or driver.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            self._exchange([*waiting, Later("COMMIT", None)], hint=told)

    def _exchange(self, asked: Sequence[Later], hint: Asked | None = None) -> list[Answer]:
        known = self.connection.info
        exchange = known.get("exchange")
        if exchange is None:
            driver: Any = self.connection.connection.driver_connection
            exchange = known["exchange"] = Exchange(driver)
        try:
            answers: list[Answer] = exchange(*((each.statement, each.values) for each in asked), hint=hint)
        except psycopg.Error as error:
            if exchange.closed:
                self.connection.invalidate(error)
            if refusal := self._refusals.get(error.diag.constraint_name or ""):
                raise refusal from error
            said = "; ".join(each.statement for each in asked)
            raise DBAPIError.instance(said, {}, error, psycopg.Error) from error
        return answers

    def attempt(self) -> "Callable[[], None]":
        """Begins what may be taken back without giving up the whole transaction, by calling what this returns."""
        self.later("SAVEPOINT attempt")
        return lambda: self.later("ROLLBACK TO SAVEPOINT attempt")

    def flush(self) -> None:
        for _, work in sorted(self._last.items()):
            work(self)
        for project_id in sorted({event["project_id"] for event in self._events}):
            self._write_events(project_id, [event for event in self._events if event["project_id"] == project_id])
        for entry in sorted(self._audit, key=lambda entry: entry["org_id"]):
            self._write_audit(entry)

    def tell_meters(self, meters: Meters) -> None:
        for name, value, labels in self._measured:
            tell = meters.observe if meters.families[name].kind == HISTOGRAM else meters.add
            tell(name, value, **labels)
        for traced, correlation_id, started, ended, said in self._traced:
            traces.record(traced, correlation_id, started, ended, **said)

    def tell_log(self) -> None:
        """What was committed, with the ids that an incident is explained with."""
        for entry in (*self._events, *self._audit):
            fields = {name: entry[name] for name in ("org_id", "project_id", "actor", "correlation_id") if entry[name]}
            fields[f"{entry['object_kind']}_id"] = entry["object_id"]
            log.info(entry.get("action") or entry["type"], extra={"fields": fields})

    def _write_events(self, project_id: str, rows: list[dict[str, Any]]) -> None:
        said = [{name: row[name] for name in ("type", "object_kind", "object_id", "actor", "data")} for row in rows]
        same = {name: rows[0][name] for name in ("org_id", "project_id", "at", "correlation_id")}
        self.later(_EVENTS, {**same, "many": len(rows), "rows": msgspec.json.encode(said).decode()})
        self.wake(f"project:{project_id}")
        self.wake(f"org:{same['org_id']}")

    def _write_audit(self, row: dict[str, Any]) -> None:
        before, after = _hashed(row)
        said = msgspec.json.encode(row["data"]).decode()
        self.later(_AUDIT, {**row, "data": said, "before": before, "after": after})


# The counter is the lock: numbers are given out in the order of commits.
_EVENTS = """
    WITH counter AS (
        UPDATE projects SET event_seq = event_seq + %(many)s WHERE id = %(project_id)s RETURNING event_seq
    )
    INSERT INTO events
        (project_id, seq, org_id, type, object_kind, object_id, actor, data, at, correlation_id)
    SELECT %(project_id)s, event_seq - %(many)s + number, %(org_id)s, type, object_kind, object_id, actor, data, %(at)s,
        %(correlation_id)s
    FROM counter, ROWS FROM (jsonb_to_recordset(%(rows)s::jsonb) AS (
        type text, object_kind text, object_id text, actor text, data jsonb
    )) WITH ORDINALITY AS said (type, object_kind, object_id, actor, data, number)
"""
# So is the end of the chain: the database itself adds the link, so that nobody holds it while they think. Without the
# org there is no number, and so no entry.
_AUDIT = """
    WITH head AS (
        UPDATE orgs SET audit_seq = audit_seq + 1, audit_hash = sha256(
            audit_hash || %(before)s::bytea || convert_to((audit_seq + 1)::text, 'UTF8') || %(after)s::bytea
        ) WHERE id = %(org_id)s RETURNING audit_seq, audit_hash
    )
    INSERT INTO audit
        (org_id, seq, project_id, actor, action, object_kind, object_id, data, at, correlation_id, hash)
    VALUES (%(org_id)s, (SELECT audit_seq FROM head), %(project_id)s, %(actor)s, %(action)s, %(object_kind)s,
        %(object_id)s, %(data)s::jsonb, %(at)s, %(correlation_id)s, (SELECT audit_hash FROM head))
"""


AUDITED = (
    *("org_id", "seq", "project_id", "actor", "action", "object_kind", "object_id", "data", "at", "correlation_id"),
    *("app_instance_id", "operating_mode", "control_plane_scope", "runtime_backend", "tenant_boundary_mode"),
)


def audit_hash(previous: bytes, row: dict[str, Any]) -> bytes:
    """The link of the chain: every field of the entry, and the hash of the one before."""
    before, after = _hashed(row)
    return hashlib.sha256(bytes(previous) + before + str(row["seq"]).encode() + after).digest()


def _hashed(row: dict[str, Any]) -> tuple[bytes, bytes]:
    """What is hashed of an entry, before and after its number."""
    content = {name: row.get(name) for name in AUDITED} | {"at": row["at"].timestamp(), "seq": 0}
    # Of the names in their order, one comes after it: no text of anybody's choosing can look like the mark.
    before, _, after = msgspec.json.encode(content, order="sorted").rpartition(b'"seq":0,')
    return before + b'"seq":', b"," + after


class Store:
    """An engine plus the seams that a simulation replaces."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock | None = None,
        ids: Ids | None = None,
        preemption_grace: timedelta = PREEMPTION_GRACE,
        seal: Seal | None = None,
    ) -> None:
        self.engine = engine
        self.counted_besides: list[Callable[[], dict[str, int]]] = []  # connections of store/readers.py
        self.clock = clock or SystemClock()
        self.ids = ids or Ids()
        self.since = self.clock.now()  # what was silent before that, this replica cannot know
        self.meters = Meters(METERS)
        self.preemption_grace = preemption_grace  # how long a machine has that is told to give way
        self.seal = seal or Seal()
        self.clock_agrees = True  # with the database's; see store/clocks.py

    def transact(
        self, work: Callable[..., T], *args: Any, actor: str = SYSTEM, correlation_id: str | None = None, **kwargs: Any
    ) -> T:
        """Run `work(tx, ...)` in one transaction; wake listeners once it is committed."""
        careful = False
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.engine.connect() as conn:  # whose transaction is ours to commit; closing it takes it back
                    tx = Tx(conn, self.clock.now(), self.ids, actor, correlation_id, careful=careful)
                    tx.preemption_grace, tx.seal = self.preemption_grace, self.seal
                    result = work(tx, *args, **kwargs)
                    tx.flush()
                    tx.commit()
                tx.tell_meters(self.meters)
                tx.tell_log()
                return result
            except Carefully as error:
                careful = True
                if attempt == ATTEMPTS:
                    raise busy(error) from error
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) not in RETRIED:
                    self.meters.add("store_unavailable_total", why="database")
                    raise unavailable(error) from error
                if attempt == ATTEMPTS:
                    raise busy(error) from error
                self.meters.add("transactions_retried_total")
                log.info("transaction runs again", extra={"fields": {"attempt": attempt}})
            except PoolTimeout as error:
                self.meters.add("store_unavailable_total", why="pool")
                raise unavailable(error) from error
        raise AssertionError("unreachable")

    def look(self, work: Callable[["Tx"], T], *, correlation_id: str | None = None, over: Lent | None = None) -> T:
        """For what only reads: each statement is a transaction of its own, which saves two round trips.

        `over`: a connection that knows nothing else, and waits in its own way (store/readers.py).
        """
        try:
            with (over or self._lent)() as conn:
                tx = Tx(conn, self.clock.now(), self.ids, SYSTEM, correlation_id, reads=True)
                tx.preemption_grace, tx.seal = self.preemption_grace, self.seal
                found = work(tx)
        except OperationalError as error:
            self.meters.add("store_unavailable_total", why="database")
            raise unavailable(error) from error
        except PoolTimeout as error:
            self.meters.add("store_unavailable_total", why="pool")
            raise unavailable(error) from error
        tx.expect_nothing_written()
        return found

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        with self.engine.connect() as conn:
            driver: Any = conn.connection.driver_connection
            driver.autocommit = True
            try:
                yield conn
            finally:
                if driver.closed:
                    conn.invalidate()
                else:
                    driver.autocommit = False

    def connections(self) -> dict[str, int]:
        """Of this process to the database, by state."""
        counted = [counted_in(self.engine), *(count() for count in self.counted_besides)]
        return {state: sum(each[state] for each in counted) for state in counted[0]}

    def database_time(self) -> datetime:
        """What the database's own clock says."""
        found: datetime = self.transact(lambda tx: tx.conn.execute(text("SELECT clock_timestamp()")).scalar_one())
        return found


def counted_in(engine: Engine) -> dict[str, int]:
    pool: Any = engine.pool
    return {"in_use": pool.checkedout(), "idle": pool.checkedin(), "most": pool.size()}


def busy(error: OperationalError | Carefully) -> Problem:
    return Problem(
        "busy",
        503,
        "The store was too busy with the same objects.",
        "Try again in a moment, with the same Idempotency-Key.",
        detail=str(error),
        extra={"retry_after": 1},
    )


def unavailable(error: OperationalError | PoolTimeout | TimeoutError) -> Problem:
    return Problem(
        "store_unavailable",
        503,
        "The database did not answer.",
        "Try again in a moment, with the same Idempotency-Key.",
        detail=str(error),
        extra={"retry_after": 1},
    )


def normalised(url: str) -> str:
    """As people write it (postgresql://...), for the driver that we use."""
    found = make_url(url)
    if found.get_backend_name() not in ("postgresql", "postgres"):
        raise Problem("not_postgresql", 500, "Only PostgreSQL is supported.", "Use a postgresql:// URL.")
    return found.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def connect(url: str, *, pool_size: int = 20, pool_seconds: float = 10.0, **options: Any) -> Engine:
    """psycopg 3 over SQLAlchemy Core. Statements that wait for a lock give up after a while and are run again."""
    return create_engine(
        url,
        pool_size=pool_size,
        pool_timeout=pool_seconds,  # a request that waits longer gets 503: its caller knows better what to do then
        max_overflow=0,  # overflow connections are closed after use: under load every request would open its own
        pool_pre_ping=False,
        pool_use_lifo=True,
        # The name tells servers and their versions apart in pg_stat_activity.
        connect_args={
            "prepare_threshold": None,  # store/exchange.py does; the driver would throw its ones away too
            "application_name": f"gpuaas {__version__} {Ids().new('sv')}",
            "options": "-c lock_timeout=10s -c idle_in_transaction_session_timeout=60s -c timezone=UTC",
        },
        **options,
    )


def fingerprint(conn: Connection) -> str:
    """Names the physical database. A dump, a clone, a promoted replica and a point-in-time restore all differ."""
    row = conn.execute(
        text(
            "SELECT (SELECT system_identifier FROM pg_control_system()), "
            "(SELECT timeline_id FROM pg_control_checkpoint()), "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    ).one()
    return ":".join(str(part) for part in row)
