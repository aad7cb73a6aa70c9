"""What was used and what it comes to."""

from collections.abc import Iterator
from datetime import datetime

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import CorrectionView, NewCorrection, UsageLine, UsageLinePage, UsageView


class Usage:
    """A period is the current month (UTC) unless `start` and `end`, times with a time zone, say otherwise."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def project(
        self, project: str, *, start: datetime | None = None, end: datetime | None = None, by: str = "allocation"
    ) -> UsageView:
        """`by`: allocation, user or offer. The items add up to the total, exactly."""
        return self._api.get(path("projects", project, "usage"), UsageView, {**_period(start, end), "by": by})

    def org(
        self, org: str, *, start: datetime | None = None, end: datetime | None = None, by: str = "project"
    ) -> UsageView:
        """Of all its projects, for its administrators."""
        return self._api.get(path("orgs", org, "usage"), UsageView, {**_period(start, end), "by": by})

    def lines(
        self,
        project: str | None = None,
        *,
        org: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> Iterator[UsageLine]:
        """Every interval at one price, of a project or of a whole organisation."""
        place = path("orgs", org, "usage", "lines") if org else path("projects", project or "", "usage", "lines")
        return self._api.pages(place, UsageLinePage, _period(start, end))

    def correct(
        self, usage_id: str, reason: str, *, start: datetime | None = None, end: datetime | None = None
    ) -> CorrectionView:
        """For platform administrators: time that is not charged after all. A new entry; nothing is edited."""
        body = NewCorrection(usage_id, reason, _text(start), _text(end))
        return self._api.post(path("usage", "corrections"), body, CorrectionView)


def _period(start: datetime | None, end: datetime | None) -> dict[str, str | None]:
    return {"from": _text(start), "to": _text(end)}


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
