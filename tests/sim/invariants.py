"""One function per invariant of design section 12 that a control plane and its agents can break. Read-only.

`Watch` sees every committed state change in order; `check` runs after every step, `settled` when faults have stopped.
"""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from gpuaas.model.lifecycle import ALLOCATION, COSTING, PREVIOUS

from . import equipment
from .actors import GRACE
from .idling import Idling
from .promises import Promises, all_kept
from .rules import Rules
from .world import World, expect

Row = dict[str, Any]
LEGAL = {(row.while_, row.becomes) for row in ALLOCATION.rows if row.becomes != PREVIOUS}
FOUND = {row.while_ for row in ALLOCATION.rows if row.on == "lost"}


GPU_QUOTAS = (
    "SELECT q.owner_id, q.most, (SELECT coalesce(sum(o.gpu_count), 0) FROM allocations a JOIN offers o"
    " ON o.id = a.offer_id WHERE q.owner_id IN (a.project_id, a.org_id) AND a.node_id IS NOT NULL"
    " AND a.reaped_at IS NULL) AS used FROM quotas q WHERE q.kind = 'gpus'"
)


class Answer(list[Row]):
    def fetchall(self) -> list[Row]:
        return self

    def fetchone(self) -> Row | None:
        return self[0] if self else None


class Look:
    """Asks in one round trip what was asked at the last look: a seed looks hundreds of times."""

    def __init__(self, monitor: psycopg.Connection[Any], known: dict[str, None]) -> None:
        self.monitor = monitor
        self.known = known
        with monitor.pipeline():
            asked = {query: self._ask(query) for query in known}
            self.answers = {query: Answer(cursor.fetchall()) for query, cursor in asked.items()}

    def execute(self, query: str, values: Any = None) -> Answer:
        if values is not None:
            return Answer(self._ask(query, values).fetchall())
        if query not in self.answers:
            self.known[query] = None
            self.answers[query] = Answer(self._ask(query).fetchall())
        return self.answers[query]

    def _ask(self, query: str, values: Any = None) -> psycopg.Cursor[Row]:
        return self.monitor.cursor(row_factory=dict_row).execute(query, values)


class Watch:
    """What was seen so far. Forgotten when the database is restored: then history itself has changed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: dict[str, None] = {}
        self.reset()

    def reset(self) -> None:
        self.seen: dict[str, int] = {}  # project -> newest event
        self.state: dict[str, str] = {}
        self.previous: dict[str, str] = {}
        self.specs: dict[tuple[str, str], tuple[int, int, bool]] = {}
        self.observed: dict[str, int] = {}
        self.costing: dict[str, datetime] = {}  # since when, by what the timeline says
        self.cost: dict[str, timedelta] = {}
        self.stopped: dict[str, datetime] = {}
        self.spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)  # that are over and cost
        self.project: dict[str, str] = {}
        self.stops: dict[str, int] = defaultdict(int)
        self.lease_ends: dict[str, tuple[datetime, datetime]] = {}  # once extended: when that was, and until when
        self.warned: dict[str, datetime] = {}
        self.lease_over: dict[str, datetime] = {}
        self.told_to_go: dict[str, datetime] = {}
        self.rules = Rules(self)
        self.promises = Promises()
        self.idling = Idling(self.world)

    def check(self) -> None:
        with self.world.monitor.transaction():
            self.world.monitor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor = Look(self.world.monitor, self.asked)
            rows = {row["id"]: row for row in cursor.execute("SELECT * FROM allocations").fetchall()}
            events = self._timeline(cursor, rows)
            self._one_holder(cursor, rows)
            self._submits(cursor, rows)
            self._one_effect(cursor, rows)
            self._audited(cursor)
            self._usage(cursor, rows)
            self._no_going_back(cursor, rows)
            self._keys(cursor, rows)
            self._wanted_stopped(cursor, rows)
            self._counts(cursor)
            self._giving_way(cursor, rows)
            self.rules.check(rows, events)
            self.promises.check(cursor, rows, events)
            if self.world.limits.equipped:
                equipment.check(self.world, cursor, rows)
            if self.world.limits.idling:
                self.idling.look(cursor)
        self._machines(rows)

    def _timeline(self, cursor: Look, rows: dict[str, Row]) -> list[Row]:
        """I8: only legal transitions, no gap. Returns what is new."""
        query = (
            "SELECT e.* FROM events e LEFT JOIN unnest(%s::text[], %s::bigint[]) AS seen (project_id, seq)"
            " ON seen.project_id = e.project_id WHERE e.seq > coalesce(seen.seq, 0) ORDER BY e.project_id, e.seq"
        )
        new = cursor.execute(query, [list(self.seen), list(self.seen.values())]).fetchall()
        for event in new:
            project, seq = event["project_id"], event["seq"]
            expect(
                seq == self.seen.get(project, 0) + 1, f"I8: event {seq} of {project} follows {self.seen.get(project)}"
            )
            self.seen[project] = seq
            if event["type"].startswith("allocation."):
                self._transition(event["object_id"], event["data"]["was"], event["data"]["state"])
                self._costs(event)
            elif event["type"].startswith("lease."):
                self._leased(cursor, event, rows[event["object_id"]])
            elif event["type"].startswith("preemption."):
                self._preempted(event, rows[event["object_id"]])
        for id, row in rows.items():
            expect(
                self.state.get(id) == row["state"],
                f"I8: {id} is {row['state']}, its timeline says {self.state.get(id)}",
            )
        return new

    def _transition(self, id: str, was: str | None, state: str) -> None:
        expect(self.state.get(id) == was, f"I8: {id} went from {was} to {state}, but was {self.state.get(id)}")
        if was == "unreachable" and state != "releasing":
            expect(state == self.previous[id], f"I8: {id} came back as {state}, was {self.previous[id]}")
        elif was is not None:
            expect((was, state) in LEGAL, f"I8: {id} went from {was} to {state}")
        if state == "unreachable" and was is not None:
            self.previous[id] = was
        if state == "stopped" and was == "active":
            self.stops[id] += 1
            expect(id in self.lease_over, f"lease: {id} was stopped, and its lease is not over")
        self.state[id] = state

    def _costs(self, event: Row) -> None:
        """What the ledger must say, told from the timeline alone."""
        id, data, at = event["object_id"], event["data"], event["at"]
        self.project[id] = event["project_id"]
        before, after = data["was"] in COSTING, data["state"] in COSTING
        if after and not before:
            self.costing[id] = max(at, self.stopped.get(id, at))
        elif before and not after:
            begun = self.costing.pop(id)
            self.stopped[id] = max(begun, datetime.fromisoformat(data["since"]) if "since" in data else at)
            self.spans[id].append((begun, self.stopped[id]))
            self.cost[id] = self.cost.get(id, timedelta()) + self.stopped[id] - begun

    def _leased(self, cursor: Look, event: Row, row: Row) -> None:
        """Nothing ends early, unwarned, or without its grace; what is extended begins anew."""
        id, at = row["id"], event["at"]
        if event["type"] == "lease.extended":
            self.warned.pop(id, None)
            self.lease_over.pop(id, None)
            self.lease_ends[id] = at, datetime.fromisoformat(event["data"]["ends_at"])
        elif event["type"] == "lease.warning":
            self.warned[id] = at
        elif event["type"] == "lease.ended" and event["data"]["reason"] == "idle":
            self.idling.ended(id, row, at, self.warned.get(id))
            self.lease_over[id] = at
        elif event["type"] == "lease.ended":
            lease = cursor.execute("SELECT max_seconds, ends_at FROM leases WHERE allocation_id = %s", [id]).fetchone()
            assert lease is not None
            seconds = timedelta(seconds=lease["max_seconds"])
            first = lease["ends_at"] or row["active_at"] + seconds  # of a reservation: the end of its window
            begin, end = self.lease_ends.get(id) or (row["active_at"], first)
            expect(at >= end, f"lease: {id} was stopped at {at}, its lease ends at {end}")
            notice = min(timedelta(minutes=10), (end - begin) / 2)
            told = self.warned.get(id)
            expect(
                told is not None and at - told >= notice,
                f"lease: {id} was stopped at {at}, its users were told at {told}",
            )
            self.lease_over[id] = at
        elif event["type"] == "lease.released":
            over = self.lease_over.get(id)
            expect(
                over is not None and at - over >= timedelta(minutes=30),
                f"lease: {id} was released at {at}, it was over at {over}",
            )

    def _preempted(self, event: Row, row: Row) -> None:
        """Only who agreed to it at the launch, and not before the grace that they were told of."""
        id, at = row["id"], event["at"]
        expect(row["preemptible"], f"preemption: {id} is not preemptible, and was {event['type']}")
        if event["type"] == "preemption.warning":
            expect(id not in self.told_to_go, f"preemption: {id} was told twice")
            self.told_to_go[id] = at
        elif event["type"] == "preemption.cancelled":
            self.told_to_go.pop(id)
        else:
            told = self.told_to_go.pop(id, None)
            expect(told is not None and at - told >= GRACE, f"preemption: {id} was released at {at}, told at {told}")

    def _giving_way(self, cursor: Look, rows: dict[str, Row]) -> None:
        """Never more than needed: one slot for each machine that waits. Nobody gives way to who would give way."""
        asked: dict[str, list[str]] = defaultdict(list)
        for row in cursor.execute("SELECT allocation_id, wanted_by FROM preemptions").fetchall():
            asked[row["wanted_by"]].append(row["allocation_id"])
        for group, ids in asked.items():
            if group.startswith("rs-"):
                continue
            members = [row for row in rows.values() if row["group_id"] == group]
            expect(not any(row["preemptible"] for row in members), f"preemption: {ids} give way to preemptible {group}")
            expect(len(ids) <= len(members), f"preemption: {ids} give way to {len(members)} machines")

    def _wanted_stopped(self, cursor: Look, rows: dict[str, Row]) -> None:
        """A machine is meant to be down exactly while it is stopped."""
        statement = "SELECT id, node_id, (body->>'stopped')::bool AS stopped FROM specs WHERE body IS NOT NULL"
        for spec in cursor.execute(statement).fetchall():
            row = rows[spec["id"]]
            if row["node_id"] == spec["node_id"] and row["state"] in ("active", "restarting", "stopped"):
                expect(
                    bool(spec["stopped"]) == (row["state"] == "stopped"),
                    f"lease: {row['id']} is {row['state']}, its spec says stopped: {spec['stopped']}",
                )

    def _one_holder(self, cursor: Look, rows: dict[str, Row]) -> None:
        """I1, I15: a GPU works for one allocation, which holds its slot; nothing of the last one is left on it."""
        held: dict[str, list[str]] = defaultdict(list)
        for claim in cursor.execute(
            "SELECT c.allocation_id, s.gpus FROM claims c JOIN slots s ON s.id = c.slot_id WHERE c.state <> 'freed'"
        ).fetchall():
            for gpu in claim["gpus"]:
                held[gpu].append(claim["allocation_id"])
        for gpu, holders in held.items():
            expect(len(holders) == 1, f"I1: {gpu} is held by {holders}")
        for agent in self.world.agents:
            expect(not agent.host.state.leaks, f"I15: a GPU was passed on unscrubbed: {agent.host.state.leaks}")
            expect(not agent.host.state.refused, f"I15: a slot was free before its scrub: {agent.host.state.refused}")
            working: dict[str, list[str]] = defaultdict(list)
            for id, box in agent.host.state.containers.items():
                # A node carries out what it was told before a restore, which the older database does not remember: to
                # it the machine is queued or unknown, and nothing is placed there until the node has said what it has.
                placed = id in rows and rows[id]["node_id"] == agent.journal.node_id
                for gpu in box.gpus if box.running else ():
                    working[gpu].append(id)
                    forgotten = self.world.restored > 0 and gpu not in held
                    expect(
                        not placed or forgotten or held.get(gpu) == [id],
                        f"I1: {id} runs on {gpu}, which is held by {held.get(gpu)}",
                    )
            for gpu, ids in working.items():
                expect(len(ids) == 1, f"I1: {gpu} works for {ids}")

    def _submits(self, cursor: Look, rows: dict[str, Row]) -> None:
        """I2: an acknowledged submit is never lost."""
        for client in self.world.clients:
            for id in client.known:
                expect(id in rows, f"I2: {id} was acknowledged to {client.name} and is gone")

    def _one_effect(self, cursor: Look, rows: dict[str, Row]) -> None:
        """I7: one idempotency key, one effect. Names carry the key that asked for them."""
        names = [row["name"] for row in rows.values()]
        expect(len(names) == len(set(names)), f"I7: made twice: {sorted(n for n in names if names.count(n) > 1)}")

    def _audited(self, cursor: Look) -> None:
        """I13: one audit entry per mutation; every mutation here has a key, but the login and what nobody asked for."""
        row = cursor.execute(
            "SELECT (SELECT count(*) FROM audit WHERE actor <> 'system' AND action <> 'session.login') AS audit,"
            " (SELECT count(*) FROM audit WHERE actor = 'system' AND action = 'allocation.release') AS ended,"
            " (SELECT count(*) FROM events WHERE type IN ('drain.released', 'queue.expired', 'preemption.released',"
            " 'lease.released')) AS told,"
            " (SELECT count(*) FROM idempotency_keys) AS keys"
        ).fetchone()
        assert row is not None
        expect(row["ended"] == row["told"], f"I13: {row['told']} were ended by nobody, {row['ended']} audit entries")
        expect(row["audit"] == row["keys"], f"I13: {row['keys']} mutations, {row['audit']} audit entries")

    def _usage(self, cursor: Look, rows: dict[str, Row]) -> None:
        """I6: open exactly while it costs, and never two at once."""
        ended: dict[str, Any] = {}
        running = set()
        ledger = cursor.execute("SELECT * FROM usage ORDER BY resource_id, started_at, ended_at").fetchall()
        for interval in ledger:
            id = interval["resource_id"]
            expect(id not in running, f"I6: {id} is counted twice")
            expect(id not in ended or ended[id] <= interval["started_at"], f"I6: intervals of {id} overlap")
            if interval["ended_at"] is None:
                running.add(id)
            else:
                ended[id] = interval["ended_at"]
        costing = {id for id, row in rows.items() if row["state"] in COSTING}
        expect(running == costing, f"I6: counted {sorted(running)}, costing {sorted(costing)}")
        self._exact(ledger)
        self._conserved(ledger, rows)
        self._lost_stop_when_last_heard(cursor, ledger, rows)

    def _exact(self, ledger: list[Row]) -> None:
        """I6: to the microsecond what the timeline says."""
        counted: dict[str, timedelta] = {}
        for interval in ledger:
            id = interval["resource_id"]
            if interval["ended_at"] is None:
                expect(
                    interval["started_at"] == self.costing.get(id),
                    f"I6: {id} is counted since {interval['started_at']}, costs since {self.costing.get(id)}",
                )
            else:
                counted[id] = counted.get(id, timedelta()) + interval["ended_at"] - interval["started_at"]
        expect(counted == self.cost, f"I6: counted {counted}, the timeline says {self.cost}")

    def _conserved(self, ledger: list[Row], rows: dict[str, Row]) -> None:
        """A GPU is paid for once at a time, by whoever holds it, and as often as there are GPUs in what was sold."""
        now, ends = self.world.clock.now(), dict[str, datetime]()
        for interval in sorted(ledger, key=lambda row: (row["started_at"], row["ended_at"] or now)):
            end = interval["ended_at"] or now
            expect(
                end <= now + timedelta(milliseconds=1),
                f"I6: {interval['resource_id']} is counted until {end}, in the future",
            )
            sold = interval["terms"]["gpu_count"]
            expect(len(interval["gpus"]) == sold, f"I6: {sold} GPUs were sold, counted are {interval['gpus']}")
            for gpu in interval["gpus"]:
                expect(
                    ends.get(gpu, interval["started_at"]) <= interval["started_at"],
                    f"I6: {gpu} is paid for twice at {interval['started_at']}",
                )
                ends[gpu] = end

    def _lost_stop_when_last_heard(self, cursor: Look, ledger: list[Row], rows: dict[str, Row]) -> None:
        """I6: what the machine of a silent node may have done since is not charged."""
        statement = "SELECT id, last_seen_at FROM nodes WHERE state = 'lost'"
        heard = {node["id"]: node["last_seen_at"] for node in cursor.execute(statement).fetchall()}
        last = {interval["resource_id"]: interval for interval in ledger}
        for id, interval in last.items():
            row = rows[id]
            if row["state"] == "unreachable" and row["previous_state"] in COSTING and row["node_id"] in heard:
                latest = max(interval["started_at"], heard[row["node_id"]])
                expect(
                    interval["ended_at"] <= latest, f"I6: {id} is counted until {interval['ended_at']}, not {latest}"
                )

    def _no_going_back(self, cursor: Look, rows: dict[str, Row]) -> None:
        """I9: generations only grow, and a tombstone is for ever."""
        for spec in cursor.execute(
            "SELECT node_id, id, incarnation, generation, body IS NULL AS dead FROM specs"
        ).fetchall():
            key, now = (spec["node_id"], spec["id"]), (spec["incarnation"], spec["generation"], spec["dead"])
            before = self.specs.get(key, (0, 0, False))
            expect(now[:2] >= before[:2], f"I9: the spec of {key} went back from {before} to {now}")
            expect(now[2] or not before[2] or now[0] > before[0], f"I9: the dead spec of {key} lives again")
            self.specs[key] = now
        for id, row in rows.items():
            expect(
                row["observed"] >= self.observed.get(id, 0), f"I9: {id} was observed at {self.observed.get(id)} before"
            )
            self.observed[id] = row["observed"]

    def _keys(self, cursor: Look, rows: dict[str, Row]) -> None:
        """I5: a key that its owner does not have is wanted nowhere, and no failure would bring it back."""
        owned: dict[str, set[str]] = defaultdict(set)
        for key in cursor.execute("SELECT user_id, fingerprint FROM ssh_keys").fetchall():
            owned[key["user_id"]].add(key["fingerprint"])
        for spec in cursor.execute("SELECT id, body->'keys' AS wanted, good->'keys' AS good FROM specs").fetchall():
            for key in (*(spec["wanted"] or []), *(spec["good"] or [] if spec["wanted"] is not None else [])):
                expect(
                    key["fingerprint"] in owned[key["user_id"]] and key["user_id"] == rows[spec["id"]]["owner_id"],
                    f"I5: {spec['id']} lets {key['fingerprint']} in, which its owner does not have",
                )

    def _counts(self, cursor: Look) -> None:
        """What placement chooses nodes by is what there is: free slots, counted from the slots themselves."""
        nodes = {row["id"]: row for row in cursor.execute("SELECT * FROM nodes").fetchall()}
        held = {
            row["slot_id"] for row in cursor.execute("SELECT slot_id FROM claims WHERE state <> 'freed'").fetchall()
        }
        drained = {row["target_id"] for row in cursor.execute("SELECT target_id FROM drains").fetchall()}
        kept = {row["node_id"] for row in cursor.execute("SELECT node_id FROM holds").fetchall()}
        booked = {row["slot_id"] for row in cursor.execute("SELECT slot_id FROM bookings").fetchall()}
        there: dict[str, list[Row]] = defaultdict(list)
        for slot in cursor.execute("SELECT * FROM slots WHERE state <> 'retired'").fetchall():
            there[slot["node_id"]].append(slot)
        counted = {
            (row["node_id"], row["gpu_model"]): row for row in cursor.execute("SELECT * FROM capacity").fetchall()
        }
        models = {(node_id, slot["gpu_model"]) for node_id, slots in there.items() for slot in slots}
        expect(set(counted) == models, f"counted are {sorted(counted)}, there are {sorted(models)}")
        for (node_id, model), row in counted.items():
            node, slots = nodes[node_id], there[node_id]
            groups: dict[int, int] = defaultdict(int)
            free = [s for s in slots if s["state"] == "approved" and s["id"] not in held | drained | booked]
            free = [s for s in free if s["gpu_model"] == model]
            links: dict[object, int] = defaultdict(int)
            for slot in free:
                groups[slot["numa"]] += len(slot["gpus"])
                links[slot["id"] if slot["link_group"] is None else slot["link_group"]] += len(slot["gpus"])
            truth = {
                "pool": node["org_id"] or "",
                "open": node["state"] == "ready"
                and bool((node["inventory"] or {}).get("ready"))
                and node_id not in drained | kept,
                "slots": len(slots),
                "free_slots": len(free),
                "free_gpus": sum(groups.values()),
                "together": max(groups.values(), default=0),
                "linked": max(links.values(), default=0),
            }
            said = {name: row[name] for name in truth}
            expect(said == truth, f"of {model} on {node_id} is counted {said}, there is {truth}")

    def _machines(self, rows: dict[str, Row]) -> None:
        """I3, I9: what is reaped has left nothing, and a machine is interrupted once for each time it was asked for."""
        nodes = {agent.journal.node_id: agent for agent in self.world.agents}
        for id, row in rows.items():
            if row["reaped_at"] is not None and row["node_id"]:
                parts = nodes[row["node_id"]].host.state.parts(id)
                expect(not parts, f"I3: {id} is reaped, but {sorted(parts)} are left on its node")
        for agent in self.world.agents:
            for id, times in agent.interruptions.items():
                if id in rows and self.world.restored == 0:
                    asked = rows[id]["restarts"] + self.stops[id] + self.specs[agent.journal.node_id, id][2]
                    expect(times <= asked, f"I9: {id} was interrupted {times} times, asked for were {asked}")


def settled(world: World) -> None:
    """I16: when faults stop, everything converges: states end, hosts equal the store, audit chains are whole."""
    with world.monitor.cursor(row_factory=dict_row) as cursor:
        rows = {row["id"]: row for row in cursor.execute("SELECT * FROM allocations").fetchall()}
        running = cursor.execute("SELECT kind, allocation_id FROM operations WHERE state = 'running'").fetchall()
        slots = cursor.execute(
            "SELECT s.node_id, h.group_id AS kept_for, a.preemptible FROM slots s"
            " LEFT JOIN holds h ON h.node_id = s.node_id"
            " LEFT JOIN claims c ON c.slot_id = s.id AND c.state <> 'freed'"
            " LEFT JOIN allocations a ON a.id = c.allocation_id WHERE s.state = 'approved'"
            " AND (c.id IS NULL OR a.preemptible) AND NOT EXISTS (SELECT FROM bookings b WHERE b.slot_id = s.id)"
        ).fetchall()
        reserved = cursor.execute("SELECT * FROM reservations WHERE state = 'booked'").fetchall()
        quotas = cursor.execute(GPU_QUOTAS).fetchall()
        bodies = cursor.execute("SELECT id, body FROM specs WHERE body IS NOT NULL").fetchall()
        keys = cursor.execute("SELECT id, fingerprint FROM ssh_keys").fetchall()
        logins = cursor.execute("SELECT * FROM sessions").fetchall()
        scrubs = cursor.execute("SELECT id FROM claims WHERE state = 'scrubbing'").fetchall()
        poisoned = cursor.execute(
            "SELECT s.id FROM specs s JOIN allocations a ON a.id = s.id AND a.node_id = s.node_id"
            " WHERE a.state = 'failed' AND a.active_at IS NOT NULL AND s.body <> s.good"
        ).fetchall()
    queued = {id for id, row in rows.items() if row["state"] == "queued"}
    for id, row in rows.items():
        expect(row["state"] in ("active", "failed", "released", "queued", "stopped"), f"I16: {id} stays {row['state']}")
        if row["state"] == "released" or (row["state"] == "failed" and row["active_at"] is None):
            expect(row["reaped_at"] is not None, f"I16: {id} is {row['state']} but not reaped")
    expect(not scrubs, f"I16: slots are scrubbed for ever: {scrubs}")
    expect(not poisoned, f"I16: {poisoned} failed and are not back on their last good generation")
    stuck = [op for op in running if op["allocation_id"] not in queued]
    expect(not stuck, f"I16: operations never end: {stuck}")
    if world.limits.operated:
        groups: dict[str, list[Row]] = defaultdict(list)
        for id in queued:
            groups[rows[id]["group_id"]].append(rows[id])
        vain = world.watch.rules.waits_in_vain(groups)
        expect(not vain, f"I16: {sorted(vain)} wait, and there is room")
        world.watch.rules.settled(rows)
    else:
        room = {row["owner_id"]: row["most"] - row["used"] for row in quotas}
        for row in reserved:  # what is booked counts, for whoever may stay until then
            for owner in {row["project_id"], row["org_id"]} & set(room):
                room[owner] -= row["count"]
        _nobody_waits_in_vain([rows[id] for id in sorted(queued)], room, slots)
    if world.limits.reserving:
        all_kept(reserved, slots, world.clock.now())
    specs = {spec["id"]: spec["body"] for spec in bodies}
    _hosts_equal_store(world, rows, specs)
    if world.restored == 0:  # what was told to a forgotten store is not told again
        _logins_on_record(world, rows, logins)
    _keys_equal_store(world, rows, specs, {key["id"]: key["fingerprint"] for key in keys})
    if world.limits.equipped:
        equipment.settled(world, rows)


def _nobody_waits_in_vain(queued: list[Row], room: dict[str, int], slots: list[Row]) -> None:
    """Who waits has no room, not on what is kept for others; who does not give way has none without those who do."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in queued:
        groups[row["group_id"]].append(row)
    for id, group in groups.items():
        firm = not group[0]["preemptible"]
        usable = [slot for slot in slots if slot["kept_for"] in (None, id)]
        usable = [slot for slot in usable if slot["preemptible"] is None or (firm and slot["preemptible"])]
        over_quota = len(group) > room.get(group[0]["project_id"], len(group))
        expect(
            over_quota or len(usable) < len(group),
            f"I16: {sorted(row['id'] for row in group)} wait while {len(usable)} slots could be theirs",
        )


def _hosts_equal_store(world: World, rows: dict[str, Row], specs: dict[str, Any]) -> None:
    for agent in world.agents:
        wanted = {
            id for id, row in rows.items() if row["node_id"] == agent.journal.node_id and row["state"] == "active"
        }
        here = {id: row["state"] for id, row in rows.items() if row["node_id"] == agent.journal.node_id}
        stopped = {id for id, state in here.items() if state == "stopped"}
        kept = stopped | {id for id, state in here.items() if state == "failed"}
        running = {id for id, box in agent.host.state.containers.items() if box.running}
        # Also what a restored database remembers as queued: it never placed it here, sets its slots aside and keeps it.
        unknown = {
            id for id in agent.host.state.ids() if id not in rows or rows[id]["node_id"] != agent.journal.node_id
        }
        expect(wanted <= running, f"I16: {sorted(wanted - running)} are active but do not run on {agent.name}")
        expect(not stopped & running, f"lease: {sorted(stopped & running)} are stopped and run on {agent.name}")
        extra = set(agent.host.state.ids()) - wanted - kept - unknown
        expect(not extra, f"I3: {sorted(extra)} are left on {agent.name}")
        lost = {id for id in world.orphans.get(agent.name, set()) if id not in rows and id not in running}
        expect(not lost, f"I16: {sorted(lost)} were destroyed because a restored database did not know them")
        for id in wanted:
            box = agent.host.state.containers[id]
            wants = specs[id]["restarts"]
            expect(box.restarts >= wants, f"I16: {id} runs restart {box.restarts}, wanted {wants}")


def _keys_equal_store(world: World, rows: dict[str, Row], specs: dict[str, Any], keys: dict[str, str]) -> None:
    """I5: who gets in is who the allocation, its spec and its host all say."""
    hosts = {agent.journal.node_id: agent.host.state for agent in world.agents}
    for id, row in rows.items():
        if row["state"] == "active":
            said = {keys[key_id] for key_id in row["key_ids"] if key_id in keys}
            wanted = {key["fingerprint"] for key in specs[id]["keys"]}
            real = {key.fingerprint for key in hosts[row["node_id"]].keys[id]}
            expect(said == wanted == real, f"I5: {id} should let in {said}, its spec says {wanted}, its host {real}")


def _logins_on_record(world: World, rows: dict[str, Row], logins: list[Row]) -> None:
    """Who is on a machine is on record, with their name; who is not has left."""
    for login in logins:
        owner = rows[login["allocation_id"]]["owner_id"]
        expect(login["user_id"] == owner and login["opened_at"] is not None, f"not all is known about {login}")
    for agent in world.agents:
        real = {(id, one.session) for id, many in agent.host.state.sessions.items() for one in many}
        here = [login for login in logins if login["node_id"] == agent.journal.node_id]
        known = {(login["allocation_id"], login["session"]) for login in here if login["closed_at"] is None}
        expect(real == known, f"on {agent.name} are {sorted(real)}, on record {sorted(known)}")
        for id, many in agent.host.state.sessions.items():
            let_in = {key.fingerprint for key in agent.host.state.keys.get(id, [])}
            expect({one.fingerprint for one in many} <= let_in, f"I5: somebody is on {id} whose key was taken away")
