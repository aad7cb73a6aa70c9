"""How much a project or an organisation may have."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewQuota, QuotaPage, QuotaView


class Quotas:
    """Of a project, or with `org` of an organisation with all its projects."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, project: str | None = None, *, org: str | None = None) -> Iterator[QuotaView]:
        """With what is used. Of a project: also those of its organisation."""
        return self._api.pages(path(*_place(project, org)), QuotaPage)

    def set(self, quota: str, most: int, project: str | None = None, *, org: str | None = None) -> QuotaPage:
        """`quota` is gpus, allocations, gpu_hours or volumes."""
        return self._api.put(path(*_place(project, org), quota), NewQuota(most), QuotaPage)

    def remove(self, quota: str, project: str | None = None, *, org: str | None = None) -> None:
        self._api.delete(path(*_place(project, org), quota))


def _place(project: str | None, org: str | None) -> tuple[str, str, str]:
    return ("orgs", org, "quotas") if org else ("projects", project or "", "quotas")
