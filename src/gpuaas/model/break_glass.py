"""An operator at a tenant's objects: why, and until when. While it is open, and no longer."""

from dataclasses import dataclass
from datetime import datetime, timedelta

LONGEST = timedelta(hours=8)


@dataclass(frozen=True)
class BreakGlass:
    id: str
    org_id: str
    user_id: str
    reason: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    ended_by: str | None

    def is_open(self, now: datetime) -> bool:
        return self.ended_at is None and now < self.expires_at
