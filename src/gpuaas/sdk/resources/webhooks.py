"""Webhooks of a project, or of an org with `org=`."""

from collections.abc import Iterator, Sequence

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    DeliveryPage,
    DeliveryView,
    IssuedWebhook,
    NewWebhook,
    Replay,
    Replayed,
    Rotation,
    WebhookChange,
    WebhookPage,
    WebhookView,
)


class Webhooks:
    """Every method takes the project that the webhook belongs to; for an org's webhook, `org` instead."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, project: str | None = None, *, org: str | None = None) -> Iterator[WebhookView]:
        return self._api.pages(_path(project, org), WebhookPage)

    def create(
        self, name: str, url: str, project: str | None = None, *, org: str | None = None, types: Sequence[str] = ("*",)
    ) -> IssuedWebhook:
        """The secret of the answer is shown this once; `gpuaas.sdk.verify_webhook` takes it."""
        return self._api.post(_path(project, org), NewWebhook(name, url, [*types]), IssuedWebhook)

    def show(self, name: str, project: str | None = None, *, org: str | None = None) -> WebhookView:
        return self._api.get(_path(project, org, name), WebhookView)

    def change(
        self,
        name: str,
        project: str | None = None,
        *,
        org: str | None = None,
        url: str | None = None,
        types: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> WebhookView:
        body = WebhookChange(url, None if types is None else [*types], enabled)
        return self._api.put(_path(project, org, name), body, WebhookView)

    def remove(self, name: str, project: str | None = None, *, org: str | None = None) -> None:
        self._api.delete(_path(project, org, name))

    def rotate(
        self, name: str, project: str | None = None, *, org: str | None = None, overlap_seconds: int = 86400
    ) -> IssuedWebhook:
        """A new secret; until the overlap is over, what is sent is signed with both."""
        return self._api.post(_path(project, org, name, "rotate"), Rotation(overlap_seconds), IssuedWebhook)

    def deliveries(
        self, name: str, project: str | None = None, *, org: str | None = None, state: str | None = None
    ) -> Iterator[DeliveryView]:
        """Newest first. `state`: only pending, delivered or dead ones."""
        return self._api.pages(_path(project, org, name, "deliveries"), DeliveryPage, {"state": state})

    def replay(self, name: str, delivery: str, project: str | None = None, *, org: str | None = None) -> int:
        """Sends one delivery again. How many are on their way."""
        return self._api.post(_path(project, org, name, "replay"), Replay(delivery), Replayed).deliveries

    def replay_range(
        self,
        name: str,
        first: int,
        last: int,
        project: str | None = None,
        *,
        org: str | None = None,
        feed: str | None = None,
    ) -> int:
        """Sends the events with these numbers again. `feed`: the project whose they are, for an org's webhook."""
        body = Replay(feed=feed, first=first, last=last)
        return self._api.post(_path(project, org, name, "replay"), body, Replayed).deliveries


def _path(project: str | None, org: str | None, *more: str) -> str:
    if (project is None) == (org is None):
        raise TypeError("a webhook belongs to a project or to an org: say one of them")
    start = ("projects", project) if project is not None else ("orgs", org or "")
    return path(*start, "webhooks", *more)
