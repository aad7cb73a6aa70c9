"""What must hold while operators and leads work on the cluster: drains, pools, the line, quotas, people, money.

A row that has the same `xmin` as at the last look was not written in between: whatever is new now came after it.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from gpuaas.control.app import usage
from gpuaas.control.operations.drain import MUST_GO
from gpuaas.control.sweeps import budgets

from .world import expect

if TYPE_CHECKING:
    from .invariants import Watch

Row = dict[str, Any]
HOUR = 3_600_000_000  # microseconds
PLACE = timedelta(hours=1)  # what a place in the line counts for, for each GPU
QUERIES = {
    "claims": "SELECT c.id, c.slot_id, c.allocation_id, c.state, s.node_id, a.org_id, a.group_id,"
    " EXISTS (SELECT FROM reservations r WHERE r.group_id = a.group_id) AS reserved FROM claims c"
    " JOIN slots s ON s.id = c.slot_id JOIN allocations a ON a.id = c.allocation_id WHERE c.state <> 'freed'",
    "drains": "SELECT target_id AS id, deadline, xmin::text FROM drains",
    "holds": "SELECT node_id AS id, group_id, xmin::text FROM holds",
    "slots": "SELECT id, node_id, state, xmin::text FROM slots",
    "nodes": "SELECT id, org_id, state FROM nodes",
    "queue": "SELECT group_id AS id, q.* FROM queue q",
    "users": "SELECT id, xmin::text, (SELECT count(*) FROM tokens t WHERE t.user_id = users.id AND t.revoked_at IS NULL"
    " AND t.expires_at > %(now)s) AS tokens FROM users WHERE disabled_at IS NOT NULL",
    "quotas": "SELECT q.owner_id || ' ' || q.kind AS id, q.owner_id, q.kind, q.most, q.xmin::text, (SELECT"
    " CASE q.kind WHEN 'gpus' THEN coalesce(sum(o.gpu_count), 0) ELSE count(*) END FROM allocations a"
    " JOIN offers o ON o.id = a.offer_id WHERE q.owner_id IN (a.project_id, a.org_id) AND a.node_id IS NOT NULL"
    " AND a.reaped_at IS NULL) AS used FROM quotas q WHERE q.kind IN ('gpus', 'allocations', 'gpu_hours')",
}
ALWAYS = {name: QUERIES[name] for name in ("claims", "holds", "quotas")}  # where nobody does the rest


@dataclass
class Before:
    """The line before a sweep: who is in it, in the order that is fair."""

    order: list[str]
    members: dict[str, set[str]]
    expired: set[str]


class Rules:
    def __init__(self, watch: "Watch") -> None:
        self.watch = watch
        self.world = watch.world
        self.seen: dict[str, dict[str, Row]] = {}
        self.now: dict[str, dict[str, Row]] = {}

    @property
    def disabled(self) -> dict[str, str]:
        """Who is locked out, and by which version of their row."""
        return {id: row["xmin"] for id, row in self.now.get("users", {}).items()}

    def look(self, queries: dict[str, str] = QUERIES) -> dict[str, dict[str, Row]]:
        """Everything at one time, in one round trip."""
        values = {"now": self.world.clock.now()}
        with self.world.monitor.pipeline():
            cursors = {
                name: self.world.monitor.cursor(row_factory=dict_row).execute(query, values if "%" in query else None)
                for name, query in queries.items()
            }
            return {name: {row["id"]: row for row in cursor.fetchall()} for name, cursor in cursors.items()}

    def check(self, rows: dict[str, Row], events: list[Row]) -> None:
        self.seen, self.now = self.now, self.look(ALWAYS if not self.world.limits.operated else QUERIES)
        for quota in self.now["quotas"].values():
            quota["hours"] = self._hours(quota["owner_id"])
        if self.world.limits.operated:
            self._pools()
            self._in_line(rows)
            self._locked_out(rows)
            come = {event["object_id"] for event in events if event["type"] == "allocation.queued"}
            for event in events:
                self._told(event, rows, come)
        if self.seen:
            self._new_claims()
            self._quotas()
        if self.seen and self.world.limits.operated:
            self._warned(rows, events)

    # drains, quarantines, holds, pools

    def _new_claims(self) -> None:
        """Nothing new comes to what is drained, set aside, or kept for somebody else."""
        for id, claim in self.now["claims"].items():
            if id in self.seen["claims"]:
                continue
            whose, slot, node = claim["allocation_id"], claim["slot_id"], claim["node_id"]
            for target in (slot, node):
                expect(not self._unchanged("drains", target), f"drain: {whose} came to {target}, which is drained")
            hold = self._unchanged("holds", node)
            holder = hold["group_id"] if hold and not claim["reserved"] else claim["group_id"]  # its own place there
            expect(claim["group_id"] == holder, f"queue: {whose} was placed on a node that is kept for {holder}")
            before = self._unchanged("slots", slot)
            expect(before is None or before["state"] == "approved", f"{whose} came to {slot}, which is out of service")

    def _unchanged(self, table: str, id: str) -> Row | None:
        """The row, if it was there before and nobody has touched it since."""
        before, row = self.seen.get(table, {}).get(id), self.now.get(table, {}).get(id)
        return row if before is not None and row is not None and before["xmin"] == row["xmin"] else None

    def _pools(self) -> None:
        """I21: a node of a tenant serves that tenant only."""
        for claim in self.now["claims"].values():
            owner = self.now["nodes"][claim["node_id"]]["org_id"]
            expect(
                owner is None or owner == claim["org_id"],
                f"I21: {claim['allocation_id']} of {claim['org_id']} is on {claim['node_id']}, which is {owner}'s",
            )

    def _told(self, event: Row, rows: dict[str, Row], come: set[str]) -> None:
        """Nobody has to go before the deadline, and nobody stops waiting before their time. (Whoever has `come` since
        the last look may have waited for long before they got in: nobody has seen until when they would wait.)"""
        at, row = event["at"], rows.get(event["object_id"])
        if event["type"] == "drain.released" and row is not None:
            targets = {claim["slot_id"] for claim in self._claims_of(row["id"])} | {row["node_id"]}
            drains = [
                look["drains"][id] for look in (self.seen, self.now) if look for id in targets & set(look["drains"])
            ]
            over = [drain for drain in drains if drain["deadline"] is not None and drain["deadline"] <= at]
            expect(bool(over), f"drain: {row['id']} was released at {at}, and no deadline was over: {drains}")
        if event["type"] == "queue.expired" and row is not None and self.seen and row["id"] not in come:
            ticket = self.seen["queue"].get(row["group_id"])
            until = ticket["expires_at"] if ticket else None
            expect(
                until is not None and until <= at, f"queue: {row['id']} expired at {at}, it would wait until {until}"
            )

    def _claims_of(self, allocation_id: str) -> list[Row]:
        looks = [look["claims"].values() for look in (self.seen, self.now) if look]
        return [claim for claims in looks for claim in claims if claim["allocation_id"] == allocation_id]

    def _warned(self, rows: dict[str, Row], events: list[Row]) -> None:
        """Whoever is on what is drained hears of it."""
        told = {event["object_id"] for event in events if event["type"] == "drain.started"}
        for id, drain in self.now["drains"].items():
            if id in self.seen["drains"] and drain["xmin"] == self.seen["drains"][id]["xmin"]:
                continue
            for claim in self.seen["claims"].values():
                row = rows[claim["allocation_id"]]
                there = claim["id"] in self.now["claims"] and claim["state"] == "held" and row["state"] in MUST_GO
                if there and id in (claim["slot_id"], claim["node_id"]):
                    expect(row["id"] in told, f"drain: {row['id']} is on {id}, and was not told that it is drained")

    # quotas

    def _quotas(self) -> None:
        """I12: a claim never goes beyond a quota. One that is lowered takes nothing from anybody."""
        for id in self.now["quotas"]:
            row = self._unchanged("quotas", id)
            if row is None or row["used"] <= self.seen["quotas"][id]["used"]:
                continue
            if row["kind"] == "gpu_hours":
                before = self.seen["quotas"][id]["hours"]
                expect(before < row["most"], f"I12: {id} got more, and {before} of {row['most']} hours were used up")
            else:
                expect(row["used"] <= row["most"], f"I12: {id} has {row['used']} of {row['most']}")

    def _hours(self, project_id: str) -> float:
        return self._used(self.world.clock.now())[project_id] / timedelta(hours=1)

    def _may_have(self, row: Row, many: int) -> bool:
        """Every offer here is of one GPU."""
        owners = {row["project_id"], row["org_id"]}
        quotas = [quota for quota in self.now["quotas"].values() if quota["owner_id"] in owners]
        return all(
            self._hours(quota["owner_id"]) < quota["most"]
            if quota["kind"] == "gpu_hours"
            else quota["used"] + many <= quota["most"]
            for quota in quotas
        )

    # people

    def _locked_out(self, rows: dict[str, Row]) -> None:
        """Who is disabled has no login, and no key on any machine."""
        for id, user in self.now["users"].items():
            expect(user["tokens"] == 0, f"{id} is disabled and has {user['tokens']} tokens")
        for spec in self._specs() if self.now["users"] else ():
            for key in (*(spec["wanted"] or []), *(spec["good"] or [] if spec["wanted"] is not None else [])):
                expect(
                    key["user_id"] not in self.now["users"], f"I5: {key['user_id']} is disabled, not on {spec['id']}"
                )
        for row in rows.values():
            out = row["owner_id"] in self.now["users"] and row["state"] not in ("releasing", "released")
            kept = row["state"] != "failed" or row["active_at"] is not None
            expect(
                not (out and kept and row["key_ids"]),
                f"I5: {row['id']} would let {row['owner_id']} in, who is disabled",
            )

    def _specs(self) -> list[Row]:
        with self.world.monitor.cursor(row_factory=dict_row) as cursor:
            query = "SELECT id, body->'keys' AS wanted, good->'keys' AS good FROM specs WHERE body IS NOT NULL"
            return cursor.execute(query).fetchall()

    def still_out(self, user_id: str, since: str, verb: str) -> None:
        """Something was done for somebody who was locked out when they asked. Unless they were let in meanwhile."""
        self.now["users"] = self.look()["users"]
        expect(self.disabled.get(user_id) != since, f"{user_id} is disabled, and was answered: {verb}")

    # the line

    def _in_line(self, rows: dict[str, Row]) -> None:
        """Whoever waits is in the line; nodes are kept for nobody else."""
        lost = {
            row["id"] for row in rows.values() if row["state"] == "queued" and row["group_id"] not in self.now["queue"]
        }
        expect(not lost, f"queue: {sorted(lost)} are queued and not in the line")
        strange = {row["group_id"] for row in self.now["holds"].values()} - set(self.now["queue"])
        expect(not strange, f"queue: nodes are kept for {sorted(strange)}, which does not wait")

    def line(self) -> Before:
        """Who should be next: the project that has used least, each of its places in the line counted as use."""
        look, now = self.look(), self.world.clock.now()
        members = self._waiting()
        tickets = [row for id, row in look["queue"].items() if id in members]
        expired = {row["id"] for row in tickets if row["expires_at"] is not None and row["expires_at"] <= now}
        left = [row for row in tickets if row["id"] not in expired]
        used, order = self._used(now), []
        left.sort(key=lambda row: (-row["priority"], row["created_at"], row["id"]))
        while left:
            first = {row["project_id"]: row for row in reversed(left)}
            next_ = min(first.values(), key=lambda row: (used[row["project_id"]], row["created_at"], row["project_id"]))
            used[next_["project_id"]] += PLACE * next_["gpus"]
            order.append(next_["id"])
            left.remove(next_)
        return Before(order, members, expired)

    def _used(self, now: datetime) -> dict[str, timedelta]:
        """By project, as the timeline says; no seed takes a day."""
        used: dict[str, timedelta] = defaultdict(timedelta)
        for id, spans in self.watch.spans.items():
            used[self.watch.project[id]] += sum((end - start for start, end in spans), timedelta())
        for id, start in self.watch.costing.items():
            used[self.watch.project[id]] += max(now - start, timedelta())
        return used

    def _waiting(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for id, group in self.world.monitor.execute("SELECT id, group_id FROM allocations WHERE state = 'queued'"):
            found[group].add(id)
        return dict(found)

    def in_order(self, before: Before) -> None:
        """After a sweep that nobody interrupted."""
        known, self.now = self.now, self.look()
        self._in_order(before, self._waiting())
        self.now = known  # `check` compares with what it saw itself

    def _in_order(self, before: Before, waiting: dict[str, set[str]]) -> None:
        late = before.expired & set(waiting)
        expect(not late, f"queue: {sorted(late)} still wait, and would only wait until now")
        nodes = defaultdict(set)
        for claim in self.now["claims"].values():
            nodes[claim["group_id"]].add(claim["node_id"])
        placed = [group for group in before.order if group not in waiting]
        still = [group for group in before.order if group in waiting]
        for later in placed:
            for earlier in still[: sum(before.order.index(group) < before.order.index(later) for group in still)]:
                ticket, many = self.now["queue"][earlier], len(waiting[earlier])
                theirs = all(self.now["nodes"][node]["org_id"] in (None, ticket["org_id"]) for node in nodes[later])
                fits = theirs and many <= len(before.members[later]) and self._may_have(ticket, many)
                expect(not fits, f"queue: {later} was placed, {earlier} waits, and was before it")
        room = [group for group in still if self._may_have(self.now["queue"][group], len(waiting[group]))]
        self._head_is_kept_a_node(room)

    def _head_is_kept_a_node(self, waiting: list[str]) -> None:
        """The first that waits for room, and nobody else; unless there is no node where it could ever fit."""
        kept = {row["group_id"] for row in self.now["holds"].values()}
        expect(kept <= set(waiting[:1]), f"queue: nodes are kept for {sorted(kept)}, first in line is {waiting[:1]}")
        if waiting and not kept:
            ticket = self.now["queue"][waiting[0]]
            fits = [id for id in self.now["nodes"] if len(self.usable(id, ticket["org_id"])) >= ticket["gpus"]]
            expect(not fits, f"queue: no node is kept for {waiting[0]}, and {sorted(fits)} could be")

    def usable(self, node_id: str, org_id: str) -> list[str]:
        """The slots of a node on which machines of this tenant may be, now or later."""
        node = self.now["nodes"][node_id]
        if node["state"] != "ready" or node["org_id"] not in (None, org_id) or node_id in self.now["drains"]:
            return []
        slots = [row for row in self.now["slots"].values() if row["node_id"] == node_id and row["state"] == "approved"]
        return [row["id"] for row in slots if row["id"] not in self.now["drains"]]

    # when all has come to rest

    def settled(self, rows: dict[str, Row]) -> None:
        self.now = self.look()
        now = self.world.clock.now()
        # A deadline may have passed since drains were looked at for the last time.
        over = {
            id for id, drain in self.now["drains"].items() if drain["deadline"] and drain["deadline"] < now - 2 * ROUND
        }
        there = {claim["allocation_id"] for claim in self.now["claims"].values()
                 if {claim["slot_id"], claim["node_id"]} & over}  # fmt: skip
        expect(not there, f"drain: {sorted(there)} are still there, and should be gone")
        self._money(now)

    def waits_in_vain(self, groups: dict[str, list[Row]]) -> list[str]:
        """Groups for which there is room now. Everybody is connected and well."""
        self.now = self.look()
        taken = {claim["slot_id"] for claim in self.now["claims"].values()}
        found = []
        for group, members in groups.items():
            nodes = [
                id for id in self.now["nodes"] if self.now["holds"].get(id, {"group_id": group})["group_id"] == group
            ]
            free = [slot for id in nodes for slot in self.usable(id, members[0]["org_id"]) if slot not in taken]
            if len(members) <= len(free) and self._may_have(members[0], len(members)):
                found.append(group)
        return found

    # money

    def _money(self, now: datetime) -> None:
        """Every microsecond at the price of its time, told from the timeline and the books alone."""
        store = self.world.servers[0].store
        with self.world.monitor.cursor(row_factory=dict_row) as cursor:
            books = cursor.execute("SELECT * FROM price_books ORDER BY version").fetchall()
            corrections = cursor.execute("SELECT * FROM corrections").fetchall()
            projects = [row["id"] for row in cursor.execute("SELECT id FROM projects ORDER BY id").fetchall()]
        spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
        for id, found in self.watch.spans.items():
            spans[self.watch.project[id]] += found
        for id, start in self.watch.costing.items():
            spans[self.watch.project[id]].append((start, now))
        for one, other in combinations(corrections, 2):
            same = one["usage_id"] == other["usage_id"]
            both = same and one["started_at"] < other["ended_at"] and other["started_at"] < one["ended_at"]
            expect(not both, f"I6: {one} and {other} give the same time back")
        spent = {}
        for project in projects:
            back = [(row["started_at"], row["ended_at"]) for row in corrections if row["project_id"] == project]
            time = sum((end - start for start, end in spans[project]), timedelta())
            time -= sum((end - start for start, end in back), timedelta())
            cost = sum(_cost(start, end, books) for start, end in spans[project])
            spent[project] = cost - sum(_cost(start, end, books) for start, end in back)
            day = timedelta(days=1)
            lines = store.transact(usage.derived, [project], now - 9 * day, now + day)
            counted, amount = sum(line.microseconds for line in lines), sum(line.amount_micros for line in lines)
            expect(counted == time // timedelta(microseconds=1), f"I6: {project} is charged {counted}, had {time}")
            expect(
                abs(amount - spent[project]) <= len(lines), f"I6: {project} pays {amount}, owes {float(spent[project])}"
            )
        budgets.sweep(store)
        self._budgets(spent)

    def _budgets(self, spent: dict[str, Fraction]) -> None:
        """Told once, each time that it was reached."""
        with self.world.monitor.cursor(row_factory=dict_row) as cursor:
            now = cursor.execute("SELECT * FROM budgets").fetchall()
            told = cursor.execute("SELECT project_id, data FROM events WHERE type = 'budget.alert'").fetchall()
        said = [(row["project_id"], row["data"]["amount_micros"], row["data"]["percent"]) for row in told]
        expect(len(said) == len(set(said)), f"budget: told twice: {sorted(said)}")
        for row in told:
            data = row["data"]
            early = data["spent_micros"] * 100 < data["amount_micros"] * data["percent"]
            expect(not early, f"budget: told before it was spent: {data}")
        for budget in now:
            for percent in (50, 80, 100):
                owed = spent[budget["project_id"]] * 100 > (budget["amount_micros"] + 100) * percent
                given = (budget["project_id"], budget["amount_micros"], percent) in said
                expect(given or not owed, f"budget: nobody was told that {percent} % of {budget} is spent")


ROUND = timedelta(seconds=4)


def _cost(start: datetime, end: datetime, books: list[Row]) -> Fraction:
    edges = [start, *sorted({book["valid_from"] for book in books if start < book["valid_from"] < end}), end]
    cost = Fraction(0)
    for first, last in pairwise(edges):
        valid = [book for book in books if book["valid_from"] <= first]
        cost += Fraction(_price(valid[-1]["prices"]) if valid else 1) * ((last - first) // timedelta(microseconds=1))
    return cost / HOUR


def _price(prices: Row) -> int:
    """Of the only offer: one H100, one CPU."""
    if "h100-1" in prices["offers"]:
        return int(prices["offers"]["h100-1"])
    return int(prices["gpus"]["H100"] + prices["cpu"])
