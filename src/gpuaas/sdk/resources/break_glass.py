"""Break-glass: operators at tenants' objects."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import BreakGlassPage, BreakGlassView, OpenBreakGlass


class BreakGlass:
    def __init__(self, api: Api) -> None:
        self._api = api

    def open(self, org: str, reason: str, *, duration_seconds: int = 3600) -> BreakGlassView:
        """For operators. The tenant sees who and why; everything done under it carries its id in the audit log."""
        return self._api.post(path("break-glass"), OpenBreakGlass(org, reason, duration_seconds), BreakGlassView)

    def list(self, org: str | None = None) -> Iterator[BreakGlassView]:
        """Newest first: all of them, for operators; or those into an organisation, for its members."""
        place = path("orgs", org, "break-glass") if org else path("break-glass")
        return self._api.pages(place, BreakGlassPage)

    def end(self, id: str, *, org: str | None = None) -> None:
        """Before its time. With `org`, as an admin of that organisation."""
        place = path("orgs", org, "break-glass", id, "end") if org else path("break-glass", id, "end")
        self._api.act(place)
