"""Invitations into orgs and projects."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import END, Email, In, Out, Password, ProjectRole, Title

OrgRole = Annotated[str, Meta(pattern=r"^(tenant_member|tenant_admin)" + END, examples=["tenant_member"])]
Lifetime = Annotated[int, Meta(ge=60, le=30 * 24 * 3600)]
InvitationSecret = Annotated[str, Meta(min_length=20, max_length=100, pattern=r"^gpi_[A-Za-z0-9_-]+" + END)]


class NewInvitation(In, frozen=True):
    """Into a project. The answer holds a secret, shown once: it reaches them through you."""

    email: Email
    role: ProjectRole = "editor"
    lifetime_seconds: Lifetime = 7 * 24 * 3600


class NewOrgInvitation(In, frozen=True):
    email: Email
    role: OrgRole = "tenant_member"
    lifetime_seconds: Lifetime = 7 * 24 * 3600


class AcceptInvitation(In, frozen=True):
    secret: InvitationSecret


class Signup(In, frozen=True):
    """An account with the invited address, and the role that the invitation gives."""

    secret: InvitationSecret
    name: Title
    password: Password


class InvitationView(Out, frozen=True):
    id: str
    org_id: str
    org: str
    project_id: str | None
    project: str | None
    email: str
    role: str
    created_by: str
    created_at: datetime
    expires_at: datetime


class IssuedInvitation(Out, frozen=True):
    invitation: InvitationView
    secret: str


class InvitationPage(Out, frozen=True):
    items: list[InvitationView]
    next_cursor: str | None
