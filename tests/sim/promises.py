"""What must hold for reservations: a place is kept for one at a time, and nobody is there who would not be gone."""

from datetime import datetime, timedelta
from typing import Any

from gpuaas.model.reservation import TAIL

from .world import expect

Row = dict[str, Any]
UNUSED = timedelta(minutes=15)
THERE = (
    "SELECT c.slot_id, c.allocation_id, b.starts_at, l.max_seconds, l.ends_at FROM claims c"
    " JOIN bookings b ON b.slot_id = c.slot_id LEFT JOIN leases l ON l.allocation_id = c.allocation_id"
    " WHERE c.state = 'held'"
)


class Promises:
    def __init__(self) -> None:
        self.ready: dict[str, datetime] = {}

    def check(self, cursor: Any, rows: dict[str, Row], events: list[Row]) -> None:
        for event in events:
            if event["type"].startswith("reservation."):
                self._told(cursor, event)
        self._kept_for_one(cursor)
        self._nobody_stays(cursor, rows)

    def _told(self, cursor: Any, event: Row) -> None:
        """Used in its window, and given up only when nobody came, or when its window is over."""
        row = cursor.execute("SELECT * FROM reservations WHERE id = %s", [event["object_id"]]).fetchone()
        assert row is not None
        id, at = row["id"], event["at"]
        if event["type"] == "reservation.ready":
            self.ready[id] = at
        elif event["type"] == "reservation.used":
            expect(row["starts_at"] <= at < row["ends_at"], f"reservation: {id} was used at {at}")
        elif event["type"] == "reservation.expired":
            waited = id in self.ready and at - self.ready[id] >= UNUSED
            expect(waited or at >= row["ends_at"], f"reservation: {id} expired at {at}, ready at {self.ready.get(id)}")

    def _kept_for_one(self, cursor: Any) -> None:
        """All its machines have a place, which is nobody else's in that time."""
        open_ = cursor.execute("SELECT id, count FROM reservations WHERE state = 'booked'").fetchall()
        seats: dict[str, set[int]] = {row["id"]: set() for row in open_}
        before: dict[str, Row] = {}
        for row in cursor.execute("SELECT * FROM bookings ORDER BY slot_id, starts_at").fetchall():
            slot, id = row["slot_id"], row["reservation_id"]
            expect(id in seats, f"reservation: {id} is over and keeps {slot}")
            seats[id].add(row["seat"])
            free = slot not in before or before[slot]["free_at"] <= row["starts_at"]
            expect(free, f"reservation: {slot} is kept for {id} and {before.get(slot)}")
            before[slot] = row
        for row in open_:
            expect(seats[row["id"]] == set(range(row["count"])), f"reservation: {row['id']} has {seats[row['id']]}")

    def _nobody_stays(self, cursor: Any, rows: dict[str, Row]) -> None:
        """Who is on a slot that is kept for later gives way, or has a lease that ends in time."""
        for row in cursor.execute(THERE).fetchall():
            id, from_ = row["allocation_id"], row["starts_at"]
            if rows[id]["preemptible"]:
                continue
            expect(row["max_seconds"] is not None, f"reservation: {id} may stay where a place is kept from {from_} on")
            ends = row["ends_at"]
            expect(ends is None or ends + TAIL <= from_, f"reservation: {id} stays until {ends}, reserved from {from_}")


def all_kept(reserved: list[Row], slots: list[Row], now: datetime) -> None:
    """When faults have stopped: whose time has come has its place, and one at risk has found no other."""
    room = [slot for slot in slots if slot["preemptible"] is None and slot["kept_for"] is None]
    for row in reserved:
        if row["trouble"] is None and row["starts_at"] <= now:
            expect(row["ready_at"] is not None, f"reservation: {row['id']} has begun, and its place is not there")
        if row["trouble"] is not None and row["ready_at"] is None:
            expect(len(room) < row["count"], f"reservation: {row['id']} is at risk, and {len(room)} slots are free")
