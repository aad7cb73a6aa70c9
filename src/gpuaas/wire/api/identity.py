"""Who: users, orgs, projects, members, tokens, keys."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from gpuaas.wire.api.base import (
    END,
    TEXT,
    Email,
    In,
    KeyLine,
    Out,
    Password,
    ProjectRole,
    Ref,
    Scope,
    Seconds,
    Slug,
    Title,
)


class Login(In, frozen=True):
    email: Email
    password: Annotated[str, Meta(min_length=1, max_length=200, pattern=TEXT)]


class NewToken(In, frozen=True):
    name: Title
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=32)] = field(default_factory=lambda: ["*"])
    lifetime_seconds: Seconds = 90 * 24 * 3600


class TokenView(Out, frozen=True):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None


class IssuedToken(Out, frozen=True):
    """The secret is shown once and kept nowhere."""

    token: TokenView
    secret: str


class NewUser(In, frozen=True):
    email: Email
    name: Title
    password: Password | None = None
    platform_role: Annotated[str, Meta(pattern=r"^(platform_admin|platform_ops)" + END)] | None = None


class UserView(Out, frozen=True):
    id: str
    email: str
    name: str
    platform_role: str | None
    created_at: datetime
    disabled_at: datetime | None


class NewOrg(In, frozen=True):
    slug: Slug
    name: Title
    admin: Ref  # becomes tenant_admin: a user's id or address


class OrgView(Out, frozen=True):
    id: str
    slug: str
    name: str
    role: str | None
    created_at: datetime


class NewProject(In, frozen=True):
    slug: Slug
    name: Title
    org: Ref | None = None  # may be left out by a member of one org


class ProjectView(Out, frozen=True):
    id: str
    org_id: str
    slug: str
    name: str
    role: str | None
    created_at: datetime
    open_network: bool


class ProjectNetwork(In, frozen=True):
    """Open: machines of this project that are on the same node may talk to each other."""

    open: bool


class MemberRole(In, frozen=True):
    role: ProjectRole


class MemberView(Out, frozen=True):
    user_id: str
    email: str
    name: str
    role: str


class NewKey(In, frozen=True):
    name: Slug
    public_key: KeyLine


class KeyView(Out, frozen=True):
    id: str
    name: str
    type: str
    public_key: str
    fingerprint: str
    created_at: datetime


class Whoami(Out, frozen=True):
    user: UserView
    token_id: str
    scopes: list[str]
    orgs: list[OrgView]
    projects: list[ProjectView]


class ProjectPage(Out, frozen=True):
    items: list[ProjectView]
    next_cursor: str | None


class MemberPage(Out, frozen=True):
    items: list[MemberView]
    next_cursor: str | None


class TokenPage(Out, frozen=True):
    items: list[TokenView]
    next_cursor: str | None


class KeyPage(Out, frozen=True):
    items: list[KeyView]
    next_cursor: str | None


class UserPage(Out, frozen=True):
    items: list[UserView]
    next_cursor: str | None
