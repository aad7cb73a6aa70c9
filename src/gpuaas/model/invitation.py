"""Somebody is asked into an org or a project, with a role."""

from dataclasses import dataclass
from datetime import datetime

from gpuaas.model.permission import ORG_ROLES, PROJECT_ROLES


@dataclass(frozen=True)
class Invitation:
    id: str
    org_id: str
    project_id: str | None  # None: into the org
    email: str
    role: str
    created_by: str
    created_at: datetime
    expires_at: datetime


def higher(held: str | None, offered: str) -> str:
    """Accepting never takes a right away."""
    ladder = PROJECT_ROLES if offered in PROJECT_ROLES else ORG_ROLES
    return held if held is not None and ladder.index(held) > ladder.index(offered) else offered
