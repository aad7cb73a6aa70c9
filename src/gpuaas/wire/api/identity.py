"""Who: users, orgs, projects, members, tokens, keys."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from gpuaas.wire.api.base import (
    TEXT,
    Email,
    In,
    KeyLine,
    Out,
    ProjectRole,
    Ref,
    Scope,
    Seconds,
    Slug,
    Title,
)
from gpuaas.wire.api.users import UserView


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
    kind: str = "api"  # password or oidc: a login; api: made on purpose
    source: str = ""  # the address that it was asked for from
    current: bool = False  # the one that asks


class Ended(Out, frozen=True):
    ended: int


class IssuedToken(Out, frozen=True):
    """The secret is shown once and kept nowhere."""

    token: TokenView
    secret: str


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
    kind: str = "person"  # or service: a service account


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
