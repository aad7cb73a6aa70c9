"""Single sign-on: what an identity provider says about somebody, and what an org makes of it."""

from dataclasses import dataclass
from datetime import datetime

from gpuaas.model.permission import PROJECT_ROLES


@dataclass(frozen=True)
class Proof:
    """Said by the provider, and checked."""

    issuer: str
    subject: str
    email: str  # verified by the provider
    name: str
    groups: frozenset[str]


@dataclass(frozen=True)
class GroupRole:
    """Who is in this group has this role in that project."""

    group: str
    project_id: str
    role: str


@dataclass(frozen=True)
class Settings:
    """What an org lets single sign-on do."""

    org_id: str
    domains: tuple[str, ...]  # addresses of these become members at their first login
    groups: tuple[GroupRole, ...]


@dataclass(frozen=True)
class Attempt:
    """A login that is under way in somebody's browser."""

    id: str
    redirect: str | None  # a loopback address of the CLI; None: the code is shown, to be pasted
    client_state: str
    challenge: str
    created_at: datetime
    expires_at: datetime


def domain(email: str) -> str:
    return email.rpartition("@")[2].lower()


def roles(settings: Settings, groups: frozenset[str]) -> dict[str, str]:
    """By project: the highest of the roles that somebody's groups give."""
    found: dict[str, str] = {}
    for mapped in settings.groups:
        if mapped.group in groups:
            held = found.get(mapped.project_id)
            if held is None or PROJECT_ROLES.index(mapped.role) > PROJECT_ROLES.index(held):
                found[mapped.project_id] = mapped.role
    return found
