"""People, what they belong to, and what they prove themselves with."""

from dataclasses import dataclass
from datetime import datetime

PERSON, SERVICE = "person", "service"
USER_KINDS = (PERSON, SERVICE)
SERVICE_DOMAIN = "service"  # ci@lab.acme.service: no address of a person ends like this

PASSWORD, OIDC, API = "password", "oidc", "api"
TOKEN_KINDS = (PASSWORD, OIDC, API)  # how somebody came by it: two kinds of logging in, or made on purpose


@dataclass(frozen=True)
class Org:
    id: str
    slug: str
    name: str
    created_at: datetime


@dataclass(frozen=True)
class Project:
    id: str
    org_id: str
    slug: str
    name: str
    created_at: datetime
    open_network: bool = False  # its machines on one node may talk to each other


@dataclass(frozen=True)
class User:
    id: str
    email: str
    name: str
    platform_role: str | None
    created_at: datetime
    disabled_at: datetime | None
    kind: str = PERSON
    project_id: str | None = None  # of a service account: the only place where it has a role


@dataclass(frozen=True)
class Member:
    project_id: str
    user_id: str
    email: str
    name: str
    role: str
    kind: str = PERSON


@dataclass(frozen=True)
class Token:
    id: str
    user_id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None
    kind: str = API
    source: str = ""  # the address that it was asked for from


@dataclass(frozen=True)
class SshKey:
    id: str
    user_id: str
    name: str
    type: str
    blob: str
    fingerprint: str
    created_at: datetime


@dataclass(frozen=True)
class Caller:
    """Who is asking, proven by a token."""

    user_id: str
    email: str
    name: str
    platform_role: str | None
    token_id: str
    scopes: tuple[str, ...]
    kind: str = PERSON
