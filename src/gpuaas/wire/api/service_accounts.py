"""Service accounts: for programs; each belongs to one project."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import In, Out, ProjectRole, Scope, Seconds, Slug, Title


class NewServiceAccount(In, frozen=True):
    name: Slug
    role: ProjectRole


class NewServiceToken(In, frozen=True):
    """What it may do has to be said: '*' is all that the account's role allows."""

    name: Title
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=32)]
    lifetime_seconds: Seconds = 90 * 24 * 3600


class ServiceAccountView(Out, frozen=True):
    id: str
    project_id: str
    name: str
    address: str  # what stands wherever a person's address would
    role: str
    created_at: datetime
    disabled_at: datetime | None


class DeletedServiceAccount(Out, frozen=True):
    machines: list[str]  # that it launched; they run on, for the project to release


class ServiceAccountPage(Out, frozen=True):
    items: list[ServiceAccountView]
    next_cursor: str | None
