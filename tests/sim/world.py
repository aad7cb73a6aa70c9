"""One simulated cluster: two servers, three agents, three clients of two tenants, one PostgreSQL, one clock.

Every step picks one thing that can happen now, by the seed. `tests/sim/faults.py` says which faults a seed has.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import psycopg
from sqlalchemy.engine import make_url

import databases
from gpuaas.control.link import session as link
from gpuaas.control.store import events
from gpuaas.control.store.idempotency import Answer
from gpuaas.control.sweeps import budgets, drains, leases, lost_nodes, preemptions, queue, reservations
from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.errors import HostError, Problem, Stale
from gpuaas.kit.ids import Ids
from gpuaas.node.board import Trouble
from gpuaas.node.host.faults import Crash
from gpuaas.node.sampling import samples
from gpuaas.wire.node import Challenge, Fenced, Heartbeat, Hello, from_agent, from_server

from . import idling
from .actors import Agent, Client, Pool, Request, Server, carry_out, log_in
from .base import IMAGES, Base
from .network import Connection
from .operators import ACCOUNTANTS_VERBS, OPERATORS_VERBS, Lead, Operator
from .tasks import Tasks

Action = tuple[int, str, Callable[[], None]]
EXPECTED = (Problem, Stale, Crash)


POOLS = (Pool(), Pool())


class Violation(AssertionError):
    """An invariant does not hold."""


def expect(holds: bool, message: str) -> None:
    if not holds:
        raise Violation(message)


@dataclass
class Limits:
    steps: int = 150
    switching: float = 0.05
    lost_answers: float = 0.1
    lost_wakes: float = 0.1
    leased: bool = False  # clients ask for leases, and half hours pass
    contended: bool = False  # clients want more than there is, and some of them give way
    operated: bool = False  # somebody drains, pools, locks out, changes quotas and prices; people log in
    reserving: bool = False  # clients book ahead
    accounted: bool = (
        False  # with `operated`: it is mostly about the line, who gets in, quotas of every kind, and money
    )
    equipped: bool = False  # clients change the runtimes of their machines
    measured: bool = False  # agents also send samples; apart, so that the seeds of the mutants stay what they are
    idling: bool = False  # with `measured`: machines that do nothing for a minute are stopped


class World:
    def __init__(self, seed: int, base: Base, url: str, limits: Limits) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.limits = limits
        self.clock = VirtualClock()
        self.ids = Ids(random.Random(seed + 1))
        self.tasks = Tasks(self.rng, limits.switching)
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.dirty = True
        self.restored = 0
        self.backup: str | None = None
        self.leftover: list[Connection] = []  # connections that their agents have left
        self.orphans: dict[str, set[str]] = {}  # machines that a restored database may not know
        self.watch: Any = None
        self.working: set[str] = set()  # machines whose GPUs have something to do
        self.base = base
        self.servers = [
            Server(f"server{n}", self.clock, self.ids, self.tasks, pool) for n, pool in enumerate(POOLS, start=1)
        ]
        self.agents = [
            Agent(f"node{n}", node_id, key, self.clock, random.Random(seed * 10 + n), self.tasks)
            for n, (node_id, key) in enumerate(base.nodes)
        ]
        self.clients = [
            Client(
                f"c{n}",
                caller,
                project,
                random.Random(seed * 100 + n),
                leased=limits.leased,
                contended=limits.contended,
                operated=limits.operated,
                reserving=limits.reserving,
                accounted=limits.accounted,
                equipped=limits.equipped,
                idling=limits.idling,
            )
            for n, (caller, project) in enumerate(base.callers)
        ]
        if limits.equipped or limits.idling:
            for client in self.clients:
                client.weight = 5
        if limits.operated:
            for client in self.clients:
                client.weight = 6  # there must be a line for it to be in order
            verbs = ACCOUNTANTS_VERBS if limits.accounted else OPERATORS_VERBS
            for n, (caller, project) in enumerate(base.operators):
                who = f"o{n}", caller, project, random.Random(seed * 100 + 50 + n)
                lead = Lead(*who, accounted=limits.accounted, weight=2 if limits.accounted else 1)
                self.clients.append(lead if project else Operator(*who, verbs=verbs))
        self.attach(url)
        if limits.operated:
            self.monitor.execute("UPDATE quotas SET most = 7 WHERE owner_id <> org_id")
        if limits.accounted:  # there from the beginning: nobody locks what is not there yet
            self.monitor.execute(
                "INSERT INTO quotas (owner_id, kind, most, org_id, changed_at) SELECT owner_id, more.kind, 9, org_id,"
                " changed_at FROM quotas q, unnest('{allocations,gpu_hours}'::text[]) AS more (kind)"
                " WHERE owner_id <> org_id AND q.kind = 'gpus'"
            )
        if limits.idling:
            idling.begin(self)
        for agent in self.agents:
            agent.start()

    @property
    def name_now(self) -> str:
        return str(make_url(self.url).database)

    @property
    def name(self) -> str:
        return f"sim_{self.seed}_{id(self):x}"

    def attach(self, url: str) -> None:
        self.url = url
        self.reconnect_monitor()
        for server in self.servers:
            server.start(url, self.monitor, self._woken)

    def reconnect_monitor(self) -> None:
        libpq = make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)
        self.monitor = psycopg.connect(libpq, autocommit=True)
        for server in self.servers:
            server.watch_with(self.monitor)

    def restore(self) -> None:
        """The control plane goes on with an older copy. Nodes and clients remember what it has forgotten."""
        for server in self.servers:
            if server.alive:
                self.server_died(server)
        self.tasks.drain()
        self.monitor.close()
        assert self.backup is not None
        self.restored += 1
        for agent in self.agents:
            running = {id for id, box in agent.host.state.containers.items() if box.running}
            self.orphans[agent.name] = {id for id in running if not agent.is_told_to_delete(id)}
        self.attach(databases.url_of(self.base.running.admin_url, self.backup))
        there = {row[0] for row in self.monitor.execute("SELECT id FROM allocations").fetchall()}
        for client in self.clients:
            client.known = {id: name for id, name in client.known.items() if id in there}
            client.answers.clear()
            client.reserved.clear()
        self.watch.reset()

    def close(self) -> None:
        for type, many in self.monitor.execute("SELECT type, count(*) FROM events GROUP BY type").fetchall():
            self.counts[type] += many
        self.counts["samples"] += self.monitor.execute("SELECT count(*) FROM samples").fetchall()[0][0]
        for server in self.servers:
            if server.alive:
                server.stop()
        self.tasks.drain()
        self.monitor.close()
        if self.backup is not None:
            databases.drop(self.base.running.admin_url, self.backup)

    def round(self) -> None:
        """Everybody's turn once: used when faults have stopped."""
        for agent in self.agents:
            if agent.connection is None:
                self.connect(agent)
            self._guard(agent, agent.runner.observe)
            if self.limits.equipped:
                self.fetch(agent)
            for id in agent.runner.wanted():
                self.converge(agent, id)
            self._talk(agent)
        self.sweep(self.servers[0], lost_nodes.sweep)
        if self.limits.operated:
            self.watch.check()
        self.sweep(self.servers[1], queue.sweep)
        if self.limits.leased:
            self.sweep(self.servers[0], leases.sweep)
        if self.limits.reserving:
            self.sweep(self.servers[0], reservations.sweep)
        if self.limits.contended or self.limits.reserving:
            self.sweep(self.servers[1], preemptions.sweep)
        if self.limits.operated:
            self.sweep(self.servers[0], drains.sweep)
            self.sweep(self.servers[1], budgets.sweep)
        for client in self.clients:
            if client.request is not None and not client.in_flight:
                self.ask(client, self.servers[0])

    def _talk(self, agent: Agent) -> None:
        for _ in range(20):
            connection = agent.connection
            if connection is None:
                return
            self.poll(agent, connection)
            while agent.connection is connection and (connection.to_server or connection.to_agent):
                if connection.to_server:
                    self.serve(connection)
                if connection.to_agent:
                    self.hear(agent, connection)
            if connection.session and (connection.woken or self._is_behind(agent)):
                self.push(connection)
            if not connection.to_agent and not connection.to_server:
                return

    def _is_behind(self, agent: Agent) -> bool:
        node_id = agent.journal.node_id
        row = self.monitor.execute("SELECT revision FROM nodes WHERE id = %s", [node_id]).fetchone()
        return bool(row and row[0] > agent.journal.revision)

    def fingerprint(self) -> Any:
        """What is compared to see whether anything still moves."""
        rows = self.monitor.execute("SELECT id, state, generation, observed FROM allocations ORDER BY id").fetchall()
        nodes = self.monitor.execute("SELECT id, state, revision FROM nodes ORDER BY id").fetchall()
        return rows, nodes, [sorted(agent.host.state.containers) for agent in self.agents]

    def busy(self) -> bool:
        """Somebody still has something to do, even if nothing moved just now."""
        if self.monitor.execute("SELECT FROM preemptions").rowcount:
            return True
        revisions = dict(self.monitor.execute("SELECT id, revision FROM nodes").fetchall())
        return any(
            agent.runner._board.retries
            or agent.journal.facts()
            or agent.host.news()
            or agent.runner.wanted()
            or agent.runner.missing()
            or agent.runner.unread()
            or agent.link.state != "open"
            or agent.journal.revision < revisions[agent.journal.node_id]
            for agent in self.agents
        )

    def verify_audit(self) -> None:
        def verify(tx: Any) -> list[str | None]:
            ids = tx.conn.exec_driver_sql("SELECT id FROM orgs").scalars().all()
            return [events.verify_audit(tx, org)[1] for org in ids]

        problems = [problem for problem in self.servers[0].store.transact(verify) if problem]
        if problems:
            raise Violation(f"I13: the audit chain is broken: {problems}")

    # what can happen now

    def actions(self) -> list[Action]:
        can: list[Action] = [
            (12, f"resume {task.name}", partial(self.tasks.resume, task)) for task in self.tasks.runnable()
        ]
        alive = [server for server in self.servers if server.alive]
        for agent in self.agents:
            if agent.alive:
                can.extend(self._agent_actions(agent))
            if agent.host.state.sessions or agent.host.state.keys:
                can.append((1, f"somebody comes to {agent.name}", partial(self.login, agent)))
        for old in self.leftover:
            if old.to_server and not old.busy and self.server(old.server).alive:
                can.append((2, f"{old.server} hears the past of {old.agent}", partial(self.serve, old)))
        for server in alive:
            work = self.rng.choice((lost_nodes.sweep, queue.sweep))
            can.append((1, f"{server.name} sweeps", partial(self.sweep, server, work)))
        for server in alive if self.limits.operated else ():
            work = self.rng.choice((queue.sweep, drains.sweep, budgets.sweep))
            name = work.__module__.rpartition(".")[2]
            can.append((2, f"{server.name} looks at {name}", partial(self.sweep, server, work)))
        for server in alive if self.limits.leased else ():
            can.append((2, f"{server.name} looks at leases", partial(self.sweep, server, leases.sweep)))
        for server in alive if self.limits.idling else ():
            can.append((4, f"{server.name} looks at leases", partial(self.sweep, server, leases.sweep)))
        if self.limits.idling:
            can.append((8, "a while passes", partial(idling.pass_a_while, self)))
            can.append((1, "somebody begins to work, or stops", partial(idling.change, self)))
        for server in alive if self.limits.reserving else ():
            can.append((3, f"{server.name} looks at reservations", partial(self.sweep, server, reservations.sweep)))
        if self.limits.reserving:
            can.append((1, "ten minutes pass", self.ten_minutes))
        for server in alive if self.limits.contended or self.limits.reserving else ():
            can.append((2, f"{server.name} preempts", partial(self.sweep, server, preemptions.sweep)))
        if self.limits.leased:
            can.append((1, "half an hour passes", partial(self.tick, 1801.0)))
            can.append((1, "a clock jumps", self.jump))
        for client in self.clients:
            if not client.in_flight and alive:
                can.append((client.weight, f"{client.name} asks", partial(self.ask, client, self.rng.choice(alive))))
        can.append((2, "time passes", self.tick))
        return can

    def _agent_actions(self, agent: Agent) -> list[Action]:
        can: list[Action] = [(1, f"{agent.name} looks", partial(self._guard, agent, agent.runner.observe))]
        connection = agent.connection
        if connection is None:
            if not agent.partitioned:
                can.append((3, f"{agent.name} connects", partial(self.connect, agent)))
        else:
            can.append((4, f"{agent.name} polls", partial(self.poll, agent, connection)))
            if self.limits.measured:
                can.append((4, f"{agent.name} measures", partial(self.measure, agent)))
            if connection.to_agent:
                can.append((12, f"{agent.name} hears", partial(self.hear, agent, connection)))
            if connection.to_server and not connection.busy:
                can.append((12, f"{connection.server} hears {agent.name}", partial(self.serve, connection)))
            if connection.session and not connection.pushing:
                # Without a wake-up the socket looks by itself every few seconds.
                weight = 8 if connection.woken else 1
                can.append((weight, f"{connection.server} pushes to {agent.name}", partial(self.push, connection)))
        if self.limits.equipped and (agent.runner.missing() or agent.runner.unread()):
            can.append((4, f"{agent.name} fetches", partial(self.fetch, agent, self.rng.random() < 0.2)))
        for id in agent.runner.wanted():
            if id not in agent.converging:
                can.append((10, f"{agent.name} converges {id}", partial(self.converge, agent, id)))
        return can

    def tick(self, seconds: float | None = None) -> None:
        self.clock.advance(self.rng.choice((0.2, 0.7, 2.0, 4.0)) if seconds is None else seconds)

    def ten_minutes(self) -> None:
        """Most of those who are there say so at once: not every pause ends with all nodes lost."""
        self.tick(601.0)
        for agent in self.agents:
            if agent.alive and agent.connection:
                self.poll(agent, agent.connection)

    def jump(self) -> None:
        """Somebody sets the clock of a server or a node, or sets it right."""
        whose = self.rng.choice((*self.servers, *self.agents))
        whose.clock.off = timedelta(hours=self.rng.choice((-24, -1, 0, 1, 24)))

    def login(self, agent: Agent) -> None:
        """Whether or not an agent is there: the machine itself lets people in."""
        there = agent.host.state.keys
        id = self.rng.choice(sorted(there)) if there else ""
        for key in there.get(id, [])[:1]:
            self.counts["login"] += agent.host.login(id, key.fingerprint)

    # agents

    def connect(self, agent: Agent) -> None:
        alive = [server for server in self.servers if server.alive]
        if not alive:
            return
        connection = Connection(agent.name, self.rng.choice(alive).name, f"{self.rng.getrandbits(128):032x}")
        agent.connection = connection
        agent.link.connected()
        connection.down([Challenge(connection.nonce)])

    def cut(self, agent: Agent) -> None:
        if agent.connection:
            agent.connection.open = False
            agent.connection = None
            if agent.alive:
                agent.link.disconnected()

    def poll(self, agent: Agent, connection: Connection) -> None:
        self._guard(agent, lambda: connection.up(agent.link.poll()))
        self._hang_up_if_broken(agent)

    def measure(self, agent: Agent) -> None:
        found = samples(agent.runner)
        agent.link.sampled(idling.used(self, found) if self.limits.idling else found)

    def fetch(self, agent: Agent, in_vain: bool = False) -> None:
        """The images that are missing come, or nobody has them; and those that should be read again are read."""

        def work() -> None:
            host = agent.host
            for each in agent.runner.missing():
                if in_vain:
                    agent.runner.fetched(each.digest, each.ids, Trouble("image_refused", "Nobody has it.", final=True))
                    continue
                begun = host.image_begin(each.digest, each.size)
                host.image_append(each.digest, begun, IMAGES[each.digest][begun:])
                host.image_end(each.digest)
                agent.runner.fetched(each.digest, each.ids)
            for id, repairs, digests in agent.runner.unread():
                for digest in digests:
                    if not host.image_check(digest, lambda: True):
                        agent.runner.fetched(digest, [id], Trouble("image_damaged", "It is fetched again."))
                agent.runner.were_read(id, repairs)

        with suppress(HostError):  # the next try is another one
            self._guard(agent, work)

    def hear(self, agent: Agent, connection: Connection) -> None:
        frame = from_server(connection.to_agent.pop(0))
        self._guard(agent, lambda: connection.up(agent.link.receive(frame)))
        self._hang_up_if_broken(agent)

    def converge(self, agent: Agent, id: str) -> None:
        agent.converging.add(id)
        runner, converging = agent.runner, agent.converging

        def finish(result: Any) -> None:
            converging.discard(id)
            self.dirty = True
            if isinstance(result, Crash):
                agent.stop()
            elif isinstance(result, Exception):
                raise result

        self.tasks.run(agent.name, f"{agent.name}:{id}", lambda: runner.converge(id), finish)

    def _guard(self, agent: Agent, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            agent.stop()

    def _hang_up_if_broken(self, agent: Agent) -> None:
        if agent.alive and agent.link.broken:
            self.cut(agent)

    # servers

    def server(self, name: str) -> Server:
        return next(server for server in self.servers if server.name == name)

    def serve(self, connection: Connection) -> None:
        """The server takes the next frame of this connection."""
        frame = from_agent(connection.to_server.pop(0))
        server, session = self.server(connection.server), connection.session
        connection.busy = True

        def finish(result: Any) -> None:
            connection.busy = False
            self.dirty = True
            if isinstance(result, BaseException):
                if not isinstance(result, EXPECTED):
                    raise result
                return
            if isinstance(frame, Hello):
                self._greeted(connection, result)
            else:
                connection.down(result)
                if any(isinstance(answer, Fenced) for answer in result):
                    connection.session = None
                if isinstance(frame, Heartbeat) and connection.cursor.heartbeat(frame.revision, self.clock.boottime()):
                    connection.woken = True

        if isinstance(frame, Hello):
            work = partial(server.store.transact, link.greet, frame, connection.nonce)
        elif session is None:
            connection.busy = False
            return
        else:
            work = partial(server.store.transact, link.receive, session, frame)
        self.tasks.run(server.name, f"{server.name}:{type(frame).__name__}:{connection.agent}", work, finish)

    def _greeted(self, connection: Connection, result: Any) -> None:
        if isinstance(result, Fenced):
            connection.down([result])
        else:
            connection.session, welcome = result
            connection.down([welcome])

    def push(self, connection: Connection) -> None:
        server, session, since = self.server(connection.server), connection.session, connection.cursor.sent
        if session is None or since is None:
            connection.woken = False
            return
        connection.pushing, connection.woken = True, False

        def finish(result: Any) -> None:
            connection.pushing = False
            if isinstance(result, BaseException):
                if not isinstance(result, EXPECTED):
                    raise result
            elif result is not None:
                connection.down([result])
                connection.cursor.pushed(result.upto, self.clock.boottime())
                connection.woken = True

        work = partial(server.store.transact, link.outgoing, session, since)
        self.tasks.run(server.name, f"{server.name}:push:{connection.agent}", work, finish)

    def sweep(self, server: Server, work: Callable[[Any], int]) -> None:
        ended: list[Any] = []
        line = self.watch.rules.line() if self.limits.operated and work is queue.sweep else None
        self.tasks.run(server.name, f"{server.name}:sweep", partial(work, server.store), partial(self._swept, ended))
        if line is not None and ended and not isinstance(ended[0], BaseException):
            self.watch.rules.in_order(line)  # nobody came in between, so that it can be told who should have been next

    def _swept(self, ended: list[Any], result: Any) -> None:
        self.dirty = True
        ended.append(result)
        if isinstance(result, BaseException) and not isinstance(result, EXPECTED):
            raise result

    def _woken(self, topics: set[str]) -> None:
        for topic in sorted(topics):
            for agent in self.agents:
                if topic == f"node:{agent.journal.node_id}" and agent.connection:
                    agent.connection.woken |= self.rng.random() >= self.limits.lost_wakes

    # clients

    def ask(self, client: Client, server: Server) -> None:
        client.in_flight, client.at = True, server.name
        if client.operated and client.secret is None:
            work = partial(server.store.transact, log_in, client.caller)
            self.tasks.run(
                server.name, f"{server.name}:login:{client.name}", work, partial(self._logged_in, client, self.restored)
            )
            return
        request = client.request = client.request or client.next_request()
        request.sent += 1
        work = partial(server.store.transact, carry_out, client.caller, client.project, request, client.secret)
        locked_out = self.watch.rules.disabled.get(client.caller.user_id)
        finish = partial(self._answered, client, request, self.restored, locked_out)
        self.tasks.run(server.name, f"{server.name}:{request.verb}:{request.key}", work, finish)

    def _logged_in(self, client: Client, restored: int, result: Any) -> None:
        client.in_flight = False
        self.dirty = True
        if isinstance(result, str) and restored == self.restored:
            client.secret = result
        elif isinstance(result, BaseException) and not isinstance(result, EXPECTED):
            raise result

    def _answered(self, client: Client, request: Request, restored: int, locked_out: str | None, result: Any) -> None:
        client.in_flight = False
        self.dirty = True
        if isinstance(result, Answer) and locked_out is not None:
            self.watch.rules.still_out(client.caller.user_id, locked_out, request.verb)
        if isinstance(result, Problem) and result.status == 401:
            client.secret = None
            return
        if restored != self.restored or self.rng.random() < self.limits.lost_answers:
            return  # never reached the client; it will ask again with the same key
        if isinstance(result, Problem):
            if result.status < 500 and result.code != "in_progress":
                client.request = None
                self.counts[f"{request.verb} {result.code}"] += 1
        elif isinstance(result, Answer):
            body = bytes(result.body or b"")
            if client.answers.setdefault(request.key, body) != body:
                raise Violation(f"I7: {request.key} was answered {client.answers[request.key]!r}, then {body!r}")
            client.known.update(msgspec.json.decode(body, type=dict[str, str]))
            client.request = None
            client.reserved += [request.name] if request.verb == "book" else []
            self.counts[f"{request.verb} accepted"] += 1
        elif isinstance(result, BaseException) and not isinstance(result, EXPECTED):
            raise result

    def server_died(self, server: Server) -> None:
        """Its connections break; what its clients were waiting for never comes."""
        server.stop()
        for client in self.clients:
            if client.at == server.name:
                client.in_flight = False
        for agent in self.agents:
            if agent.connection and agent.connection.server == server.name:
                self.cut(agent)
