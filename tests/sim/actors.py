"""The processes of the simulation: servers and agents run the product's own code, clients are scripts with a memory."""

import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url

from gpuaas.control.app import allocations, keys, leases, machine_access, reservations, runtimes, sessions
from gpuaas.control.app.idempotency import once, request_hash
from gpuaas.control.store import identity, stores
from gpuaas.control.store.idempotency import Answer
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.kit.clock import SteadyClock, VirtualClock
from gpuaas.kit.ids import Ids
from gpuaas.model.identity import Caller
from gpuaas.node.host.fake import FakeDisk, FakeHost
from gpuaas.node.host.faults import Crash
from gpuaas.node.identity import Identity
from gpuaas.node.journal import Journal
from gpuaas.node.link import Link
from gpuaas.node.runner import Runner
from gpuaas.wire.api import Launch, LeaseRequest

from .base import RUNTIMES
from .network import Connection
from .tasks import OneByOne, SimConnection, Tasks

GRACE = timedelta(seconds=10)  # of machines that give way


class Jumpy:
    """The clock of one machine: whoever sets it moves its wall time, and never the seconds that pass."""

    def __init__(self, true: VirtualClock) -> None:
        self.true = true
        self.off = timedelta()

    def now(self) -> datetime:
        return self.true.now() + self.off

    def boottime(self) -> float:
        return self.true.boottime()


class SimStore(Store):
    """A store whose database has the world's time."""

    true: VirtualClock

    def database_time(self) -> datetime:
        return self.true.now()


class Pool:
    """Connections of one server. Its wake-ups go to the world, which may lose them.

    The engine outlives seeds, and with it SQLAlchemy's cache of compiled statements.
    """

    def __init__(self) -> None:
        self.connect: Callable[[], Any]
        self.engine = create_engine(
            "postgresql+psycopg://", creator=lambda: self.connect(), pool_size=50, pool_reset_on_return="rollback"
        )
        event.listen(self.engine, "connect", self._connected)

    def _connected(self, driver: Any, record: Any) -> None:
        record.info["exchange"] = OneByOne(driver, lambda topics: self.on_wake(topics))

    def aim(self, url: str, tasks: Tasks, monitor: Any, on_wake: Callable[[set[str]], None]) -> None:
        libpq = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self.kind: Any = type("Bound", (SimConnection,), {"tasks": tasks, "monitor": monitor})
        self.connect = lambda: self.kind.connect(libpq, prepare_threshold=None)
        self.on_wake = on_wake


class Server:
    def __init__(self, name: str, clock: VirtualClock, ids: Ids, tasks: Tasks, pool: Pool) -> None:
        self.name = name
        self.alive = False
        self.tasks = tasks
        self.pool = pool
        self.clock = Jumpy(clock)
        self.store = SimStore(pool.engine, clock, ids, GRACE)
        self.store.true = clock

    def start(self, url: str, monitor: Any, on_wake: Callable[[set[str]], None]) -> None:
        self.pool.aim(url, self.tasks, monitor, on_wake)
        self.store.clock = SteadyClock(self.store.database_time(), self.clock)
        self.store.since = self.store.clock.now()
        self.store.transact(stores.ensure)
        self.alive = True

    def watch_with(self, monitor: Any) -> None:
        if self.alive:
            self.pool.kind.monitor = monitor

    def stop(self) -> None:
        self.alive = False
        self.tasks.kill(self.name)
        self.pool.engine.dispose()


class Agent:
    def __init__(
        self, name: str, node_id: str, key: bytes, clock: VirtualClock, rng: random.Random, tasks: Tasks
    ) -> None:
        self.name = name
        self.host = FakeHost("3xH100", name)
        self.disk = FakeDisk()
        self.clock = Jumpy(clock)
        self.tasks = tasks
        self.rng = rng
        self.identity = Identity(Ed25519PrivateKey.from_private_bytes(key))
        self.alive = False
        self.partitioned = False
        self.connection: Connection | None = None
        self.converging: set[str] = set()
        self.crash_in: int | None = None  # hook points until the agent dies
        self.interruptions: Counter[str] = Counter()  # how often the agent itself stopped a running machine
        self._was_running: dict[str, bool] = {}
        self.host.clock = lambda: self.clock.now().timestamp()
        self.host.hook = self._hook
        self.disk.hook = self._disk_hook
        self.journal = Journal(self.disk, Ids(rng))
        self.journal.joined(node_id)

    def start(self) -> None:
        self.crash_in = None
        self.journal = Journal(self.disk, Ids(self.rng))
        self.runner = Runner(self.host, self.journal, self.clock)
        self.link = Link(self.runner, self.journal, self.identity.sign_link, self.clock, "sim")
        self.converging = set()
        self.alive = True

    def stop(self) -> None:
        self.alive = False
        self.crash_in = None
        if self.connection:
            self.connection.open = False
            self.connection = None
        self.tasks.kill(self.name)

    def is_told_to_delete(self, id: str) -> bool:
        record = self.journal.record(id)
        return record is not None and record.spec is not None and record.spec.body is None

    def _hook(self, point: str, id: str) -> None:
        if point == "container_stop:before":
            box = self.host.state.containers.get(id)
            self._was_running[id] = box is not None and box.running
        elif point == "container_stop:killed":
            self.interruptions[id] += self._was_running.pop(id, False)
        self._count_down()
        self.tasks.pause()

    def _disk_hook(self, point: str, id: str) -> None:
        self._count_down()  # the journal's lock is held here: nobody else may run

    def _count_down(self) -> None:
        if self.alive and self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                self.crash_in = None
                raise Crash("agent killed")


@dataclass
class Request:
    key: str
    verb: str
    name: str
    count: int = 1
    wait: bool = False
    keys: tuple[str, ...] = ()
    seconds: int = 0  # of a lease
    idle_seconds: int | None = None
    preemptible: bool = False
    priority: int = 5
    wait_seconds: int | None = None
    work: Callable[..., None] | None = None  # of those who run the cluster; see operators.py
    about: tuple[Any, ...] = ()
    reservation: str = ""
    starts_in: int = 0  # seconds
    sent: int = 0


@dataclass
class Client:
    """One user. Sends one request at a time, and the same one again until it has an answer."""

    name: str
    caller: Caller
    project: str
    rng: random.Random
    request: Request | None = None
    in_flight: bool = False
    at: str = ""  # the server that works on it
    made: int = 0
    known: dict[str, str] = field(default_factory=dict)  # acknowledged allocations: id -> name
    answers: dict[str, bytes] = field(default_factory=dict)  # by key
    leased: bool = False  # asks for leases, and extends them
    contended: bool = False  # wants more than there is, and gives way
    operated: bool = False  # is somebody whom operators can lock out, and asks for all that a line knows
    weight: int = 2  # how often it has a turn
    secret: str | None = None  # of the login, where one is needed
    reserving: bool = False  # books ahead
    accounted: bool = False  # with `operated`: lets go of what it has, so that there is something to account for
    idling: bool = False  # asks for machines that are stopped when they do nothing
    equipped: bool = False  # applies, switches, rolls back, repairs and removes runtimes
    reserved: list[str] = field(default_factory=list)  # names that were acknowledged

    def next_request(self) -> Request:
        self.made += 1
        key = f"{self.name}-{self.made}"
        verbs = (*VERBS, *(8 * ("extend",))) if self.leased else VERBS
        verbs = (*VERBS, *(6 * ("launch",))) if self.contended else verbs
        verbs = (*verbs, *(8 * ("launch",))) if self.operated else verbs
        verbs = (*verbs, *(8 * ("release",))) if self.accounted else verbs
        if self.reserving and self.rng.random() < 0.7:
            return self._about_reservations(key)
        verbs = (*verbs, *EQUIPPING) if self.equipped else verbs
        verb = self.rng.choice(verbs if self.known else ("launch",))
        if verb.startswith("runtime."):
            slug, version = self.rng.choice(RUNTIMES)
            about = {"runtime.apply": (slug, version), "runtime.rollback": (slug, None)}.get(verb, (slug,))
            return Request(key, verb, self.known[self.rng.choice(sorted(self.known))], about=about)
        if self.equipped and verb == "launch" and self.rng.random() < 0.5:
            return Request(
                key, verb, f"m-{key}", 1, self.rng.random() < 0.6, about=(":".join(self.rng.choice(RUNTIMES)),)
            )
        if verb == "launch":
            request = Request(key, verb, f"m-{key}", self.rng.choice((1, 1, 1, 2)), self.rng.random() < 0.6)
            if self.contended:
                many = self.rng.choice((1, 2, 3, 4))
                return replace(request, count=many, wait=True, preemptible=self.rng.random() < 0.5)
            if self.operated:
                request.count, request.wait = self.rng.choice((1, 1, 2, 2)), self.rng.random() < 0.8
                request.priority = self.rng.choice((0, 0, 1, 5))
                request.wait_seconds = self.rng.choice((None, None, 6, 30))
            if self.idling:
                request.idle_seconds = self.rng.choice((None, 45, 90))
            return replace(request, seconds=self.rng.choice((0, 6, 20, 60))) if self.leased else request
        if verb == "extend":
            return Request(key, verb, self.known[self.rng.choice(sorted(self.known))], seconds=20)
        if verb.startswith("key."):
            return Request(key, verb, "desk")
        chosen = self.rng.choice(((), ("laptop",), ("desk",), ("laptop", "desk")))
        keys = chosen if verb == "access.update" else ()
        return Request(key, verb, self.known[self.rng.choice(sorted(self.known))], keys=keys)

    def _about_reservations(self, key: str) -> Request:
        """Booked, used, cancelled, and machines in between that are gone in time, or not."""
        verb = self.rng.choice(("book", "book", "use", "use", "cancel", "launch", "launch", "extend"))
        if verb == "launch" or (verb == "extend" and not self.known):
            kind = self.rng.choice(("firm", "leased", "leased", "preemptible"))
            seconds = self.rng.choice((60, 600, 3600)) if kind == "leased" else 0
            request = Request(key, "launch", f"m-{key}", self.rng.choice((1, 2, 3)), self.rng.random() < 0.6)
            return replace(request, seconds=seconds, preemptible=kind == "preemptible")
        if verb == "extend":
            return Request(key, verb, self.known[self.rng.choice(sorted(self.known))], seconds=1800)
        if verb == "book" or not self.reserved:
            request = Request(key, "book", f"r-{key}", self.rng.choice((1, 2, 3)), self.rng.random() < 0.5)
            length = self.rng.choice((1800, 3600, 7200))
            return replace(request, seconds=length, starts_in=self.rng.choice((0, 60, 900, 3600)))
        name = self.rng.choice(self.reserved)
        return Request(key, verb, f"m-{key}" if verb == "use" else name, reservation=name)


VERBS = (
    *("launch", "launch", "launch", "restart", "restart", "restart", "release", "release"),
    *("access.update", "access.update", "access.update", "key.remove", "key.add"),
)


EQUIPPING = (
    *(8 * ("runtime.apply",)),
    *("runtime.rollback", "runtime.rollback", "runtime.remove", "runtime.remove", "runtime.repair"),
)


def log_in(tx: Tx, caller: Caller) -> str:
    """What the HTTP edge does once the password is right."""
    user = identity.user(tx, caller.user_id)
    assert user is not None
    return sessions.login(tx, user, "sim")[1]


def carry_out(tx: Tx, caller: Caller, project: str, request: Request, secret: str | None = None) -> Answer:
    """What the HTTP edge does with a request, without HTTP."""
    if secret is not None:
        caller = sessions.authenticate(tx, secret)
    tx.actor = caller.user_id
    content = msgspec.json.encode(
        [
            request.verb,
            request.name,
            request.count,
            request.wait,
            request.keys,
            request.seconds,
            request.preemptible,
            request.about,
            request.reservation,
            request.starts_in,
        ]
    )
    hashed = request_hash("POST", request.verb, content)

    def work() -> Answer:
        if request.work is not None:
            made = {}
            request.work(tx, caller, project, *request.about)
        elif request.verb == "launch":
            lease = LeaseRequest(request.seconds or None, request.idle_seconds)
            lease = lease if lease != LeaseRequest() else None
            until = request.wait_seconds if request.wait else None
            body = Launch(
                request.name, "h100-1", project=project, count=request.count, wait=request.wait, wait_seconds=until,
                priority=request.priority, lease=lease, preemptible=request.preemptible,
                runtime_bundle_slug=request.about[0] if request.about else None,
            )  # fmt: skip
            started, _ = allocations.launch(tx, caller, body)
            made = {allocation.id: allocation.name for allocation, *_ in started}
        elif request.verb == "book":
            made = {}
            starts_at = tx.now + timedelta(seconds=request.starts_in)
            window = starts_at, starts_at + timedelta(seconds=request.seconds)
            launch = f"m-{request.key}" if request.wait else None
            asked = (request.name, "h100-1", project, request.count, *window, launch, None)
            reservations.book(tx, caller, *asked)
        elif request.verb == "cancel":
            made = {}
            reservations.cancel(tx, caller, request.name, request.name)
        elif request.verb == "use":
            booked = reservations.show(tx, caller, request.reservation)
            body = Launch(request.name, "h100-1", project=project, count=booked.count, reservation=booked.id)
            started, _ = allocations.launch(tx, caller, body)
            made = {allocation.id: allocation.name for allocation, _ in started}
        elif request.verb == "key.add":
            made = {}
            keys.add_key(tx, caller, request.name, key_line(request.key))
        elif request.verb == "key.remove":
            made = {}
            keys.remove_key(tx, caller, request.name)
        elif request.verb == "extend":
            allocation, _ = leases.extend(tx, caller, request.name, request.seconds)
            made = {allocation.id: allocation.name}
        elif request.verb == "runtime.apply":
            allocation, _ = runtimes.apply(tx, caller, request.name, None, *request.about, None)
            made = {allocation.id: allocation.name}
        elif request.verb in ("runtime.rollback", "runtime.repair", "runtime.remove"):
            change = getattr(runtimes, request.verb.removeprefix("runtime."))
            allocation, _ = change(tx, caller, request.name, *request.about)
            made = {allocation.id: allocation.name}
        elif request.verb == "access.update":
            allocation, _ = machine_access.set_keys(tx, caller, request.name, request.keys)
            made = {allocation.id: allocation.name}
        else:
            verb = allocations.restart if request.verb == "restart" else allocations.release
            allocation, _ = verb(tx, caller, request.name, request.name)
            made = {allocation.id: allocation.name}
        tx.expect_one_audit_entry()
        return Answer(hashed, 202, {}, msgspec.json.encode(made))

    return once(tx, caller.user_id, request.key, hashed, work)


def key_line(secret: str) -> str:
    """A public key like any other; nobody has the private half."""
    parts = (b"ssh-ed25519", hashlib.sha256(secret.encode()).digest())
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"
