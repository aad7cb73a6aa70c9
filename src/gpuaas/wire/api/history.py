"""What happened: events, audit, and whether the server is up."""

from datetime import datetime
from typing import Any

from gpuaas.wire.api.base import Out


class EventView(Out, frozen=True):
    seq: int
    type: str
    at: datetime
    org_id: str
    project_id: str
    object_kind: str
    object_id: str
    actor: str
    data: dict[str, Any]
    correlation_id: str | None
    app_instance_id: str | None
    operating_mode: str | None
    control_plane_scope: str | None
    runtime_backend: str | None
    tenant_boundary_mode: str | None


class AuditView(Out, frozen=True):
    seq: int
    at: datetime
    org_id: str
    project_id: str | None
    actor: str
    action: str
    object_kind: str
    object_id: str
    data: dict[str, Any]
    correlation_id: str | None
    hash: str


class AuditVerdict(Out, frozen=True):
    org_id: str
    entries: int
    intact: bool
    problem: str | None


class Health(Out, frozen=True):
    status: str
    version: str


class EventPage(Out, frozen=True):
    items: list[EventView]
    next_cursor: str | None


class AuditPage(Out, frozen=True):
    items: list[AuditView]
    next_cursor: str | None
