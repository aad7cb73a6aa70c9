"""Who changed what: the hash-chained record of an org, and of the platform."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import AuditPage, AuditVerdict, AuditView


class Audit:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, org: str | None = None) -> Iterator[AuditView]:
        """Oldest first. `org` may be left out by a member of one."""
        return self._api.pages(path("audit"), AuditPage, {"org": org})

    def verify(self, org: str | None = None) -> AuditVerdict:
        """Walks the chain, and names the first entry that does not fit."""
        return self._api.get(path("audit", "verify"), AuditVerdict, {"org": org})

    def list_platform(self) -> Iterator[AuditView]:
        return self._api.pages(path("platform", "audit"), AuditPage)

    def verify_platform(self) -> AuditVerdict:
        return self._api.get(path("platform", "audit", "verify"), AuditVerdict)
