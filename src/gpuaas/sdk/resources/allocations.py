"""The machine: plan, launch, list, show, connect, restart, release; what it uses and how it is."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    Access,
    AllocationPage,
    AllocationView,
    Changed,
    Confirm,
    Extend,
    Extended,
    Launch,
    Launched,
    LeaseRequest,
    PlanRequest,
    PlanView,
    QueuePage,
    WaitingView,
)
from gpuaas.wire.metrics import HealthPage, HealthView, MetricsView

if TYPE_CHECKING:
    from gpuaas.sdk.streams import Stream


class Allocations:
    def __init__(self, api: Api) -> None:
        self._api = api

    def plan(
        self,
        offer: str,
        *,
        project: str | None = None,
        count: int = 1,
        runtime: str | None = None,
        runtime_id: str | None = None,
        max_duration_seconds: int | None = None,
        preemptible: bool = False,
    ) -> PlanView:
        """What a launch would do right now, without doing it."""
        lease = LeaseRequest(max_duration_seconds) if max_duration_seconds else None
        body = PlanRequest(offer, project, count, runtime_id, runtime, lease, preemptible)
        return self._api.post(path("allocations", "plan"), body, PlanView)

    def launch(
        self,
        name: str,
        *,
        offer: str,
        project: str | None = None,
        count: int = 1,
        wait: bool = False,
        wait_seconds: int | None = None,
        priority: int = 5,
        keys: Sequence[str] | None = None,
        max_duration_seconds: int | None = None,
        idle_seconds: int | None = None,
        preemptible: bool = False,
        reservation: str | None = None,
        runtime: str | None = None,
        idempotency_key: str | None = None,
    ) -> Launched:
        """Accepted, not finished: `client.wait(launched.operations[0])` waits for the machine.

        `count` machines or none; `wait` queues when nothing fits, for `wait_seconds` at most, `priority` 9 before 0 in
        your project. `keys` are names of your SSH keys, all by default.
        `max_duration_seconds` after it is up, or after `idle_seconds` of doing nothing, it is stopped, then released.
        `preemptible`: released after a warning when others do not fit without it.
        `reservation`: uses it; offer and count are what was booked, and the machine is stopped when its window ends.
        `runtime`: a managed runtime, like `pytorch`, applied beside the launch: see `runtime_operations`.
        With an `idempotency_key` of your own the call can be repeated by another process too.
        """
        access = Access(keys=list(keys)) if keys else Access()
        leased = max_duration_seconds is not None or idle_seconds is not None
        lease = LeaseRequest(max_duration_seconds, idle_seconds) if leased else None
        body = Launch(
            name,
            offer,
            project=project,
            count=count,
            wait=wait,
            access=access,
            lease=lease,
            wait_seconds=wait_seconds,
            priority=priority,
            preemptible=preemptible,
            reservation=reservation,
            runtime_bundle_slug=runtime,
        )
        return self._api.post(path("allocations"), body, Launched, idempotency_key)

    def queue(self, project: str | None = None) -> Iterator[WaitingView]:
        """What waits, in its order: of one project or of all that you see."""
        return self._api.pages(path("queue"), QueuePage, {"project": project, "limit": None})

    def list(self, project: str | None = None, *, released: bool = False) -> Iterator[AllocationView]:
        """Live ones of one project or of all that you see; `released` adds those that are gone."""
        query = {"project": project, "all": True if released else None}
        return self._api.pages(path("allocations"), AllocationPage, query)

    def show(self, name: str) -> AllocationView:
        """By id, or by a name that is unique in the projects that you see."""
        return self._api.get(path("allocations", name), AllocationView)

    def connect(self, name: str) -> "Stream":
        """Bytes to and from the machine's sshd, through the server; for an ssh client to speak over."""
        from gpuaas.sdk.streams import open_stream  # few need it, and it brings a library of its own

        return open_stream(self._api.transport, path("allocations", name, "ssh"))

    def restart(self, name: str, *, confirm: str, idempotency_key: str | None = None) -> Changed:
        """Ends every session and process on the machine. `confirm` repeats the machine's name."""
        return self._api.post(path("allocations", name, "restart"), Confirm(confirm), Changed, idempotency_key)

    def release(self, name: str, *, confirm: str, idempotency_key: str | None = None) -> Changed:
        """Gives the machine back; what is on its disk is lost. `confirm` repeats the machine's name."""
        return self._api.post(path("allocations", name, "release"), Confirm(confirm), Changed, idempotency_key)

    def extend(self, name: str, seconds: int, *, idempotency_key: str | None = None) -> Extended:
        """Lets it stay longer; one that was stopped is started again, and `operation` says how far that is."""
        return self._api.post(path("allocations", name, "extend"), Extend(seconds), Extended, idempotency_key)

    def metrics(self, name: str, *, since: datetime | None = None, step_seconds: int | None = None) -> MetricsView:
        """At most 1000 points: of the last hour, unless `since` (with a time zone) says more."""
        query = {"since": since.isoformat() if since else None, "step": step_seconds}
        return self._api.get(path("allocations", name, "metrics"), MetricsView, query)

    def health(self, name: str) -> HealthView:
        """How the machine is, why, and what it uses right now."""
        return self._api.get(path("allocations", name, "health"), HealthView)

    def health_of_all(self, project: str | None = None) -> Iterator[HealthView]:
        """The same for every live machine of one project, or of all that you see."""
        return self._api.pages(path("allocation-health"), HealthPage, {"project": project})
