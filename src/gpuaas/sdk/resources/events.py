"""The activity of a project: list, follow."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.sdk.follow import decoded, frames
from gpuaas.wire.api import EventPage, EventView


class Events:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, project: str | None = None, *, object_id: str | None = None) -> Iterator[EventView]:
        """Oldest first. `project` may be left out by somebody who sees one."""
        return self._api.pages(path("events"), EventPage, {"project": project, "object": object_id})

    def follow(self, project: str | None = None, *, after: int | None = None) -> Iterator[EventView]:
        """Every event, once and in order, for as long as you read: after number `after`, or from now on."""
        seen = -1 if after is None else after
        last_id = "" if after is None else str(after)
        for frame in frames(self._api.transport, path("events", "follow"), query={"project": project}, last_id=last_id):
            event = decoded(frame, EventView)
            if event.seq > seen:
                seen = event.seq
                yield event

    def follow_org(self, org: str, *, position: str = "") -> Iterator[tuple[EventView, str]]:
        """Every event of every project of an org, once, each with the position after it, from which to go on later.

        In order within a project; there is no order between projects.
        """
        seen: dict[str, int] = {}
        for frame in frames(self._api.transport, path("orgs", org, "events", "follow"), last_id=position):
            event = decoded(frame, EventView)
            if event.seq > seen.get(event.project_id, -1):
                seen[event.project_id] = event.seq
                yield event, frame.id
