"""Machines for a time that is to come."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import Confirm, NewReservation, ReservationPage, ReservationView, ReservedLaunch


class Reservations:
    def __init__(self, api: Api) -> None:
        self._api = api

    def book(
        self,
        name: str,
        *,
        offer: str,
        starts_at: datetime,
        ends_at: datetime,
        project: str | None = None,
        count: int = 1,
        launch: str | None = None,
        keys: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> ReservationView:
        """Times with a time zone. `launch`: machines of that name are launched when it begins, with `keys` or all of
        yours; otherwise launch with `reservation=name` within a quarter of an hour."""
        carried = ReservedLaunch(launch, list(keys) if keys else None) if launch else None
        window = starts_at.isoformat(), ends_at.isoformat()
        body = NewReservation(name, offer, *window, project=project, count=count, launch=carried)
        return self._api.post(path("reservations"), body, ReservationView, idempotency_key)

    def list(self, project: str | None = None, *, ended: bool = False) -> Iterator[ReservationView]:
        """What is booked, of one project or of all that you see; `ended` adds what was."""
        query = {"project": project, "all": True if ended else None}
        return self._api.pages(path("reservations"), ReservationPage, query)

    def show(self, name: str) -> ReservationView:
        """By id, or by a name that is booked."""
        return self._api.get(path("reservations", name), ReservationView)

    def cancel(self, name: str, *, confirm: str, idempotency_key: str | None = None) -> ReservationView:
        """Gives its place back. `confirm` repeats its name."""
        return self._api.post(path("reservations", name, "cancel"), Confirm(confirm), ReservationView, idempotency_key)
