"""Webhooks of a project or of an org: where events go, what was sent, and sending it again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from gpuaas.control.app import access
from gpuaas.control.store import deliveries, events, identity, webhooks
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Taken, conflict, invalid, not_found
from gpuaas.model.event import EVENTS
from gpuaas.model.identity import Caller
from gpuaas.model.webhook import Delivery, Webhook, is_filter, wants

MOST_WEBHOOKS = 16
MOST_REPLAYED = 1000


@dataclass(frozen=True)
class Place:
    org_id: str
    project_id: str | None  # None: the whole org


def of_project(verb: str, name: str) -> Callable[[Tx, Caller], Place]:
    def find(tx: Tx, caller: Caller) -> Place:
        project = access.in_project(tx, caller, f"webhook.{verb}", name)
        return Place(project.org_id, project.id)

    return find


def of_org(verb: str, name: str) -> Callable[[Tx, Caller], Place]:
    def find(tx: Tx, caller: Caller) -> Place:
        return Place(access.in_org(tx, caller, f"org_webhook.{verb}", name).id, None)

    return find


def create_webhook(tx: Tx, place: Place, name: str, url: str, types: list[str]) -> tuple[Webhook, str]:
    if len(webhooks.webhooks(tx, place.org_id, place.project_id)) >= MOST_WEBHOOKS:
        raise conflict("too_many_webhooks", f"There are {MOST_WEBHOOKS} webhooks already.", "Remove one first.")
    try:
        made, secret = webhooks.insert_webhook(
            tx, place.org_id, place.project_id, name, checked_url(url), checked_types(types)
        )
    except Taken as error:
        raise conflict("name_taken", f"There is a webhook {name!r} already.", "Choose another name.") from error
    _record(tx, "webhook.create", "webhook.created", made, url=url, types=types)
    return made, secret


def list_webhooks(tx: Tx, place: Place) -> list[Webhook]:
    return webhooks.webhooks(tx, place.org_id, place.project_id)


def show_webhook(tx: Tx, place: Place, name: str, *, lock: bool = False) -> Webhook:
    found = webhooks.webhook(tx, place.org_id, place.project_id, name, lock=lock)
    if found is None:
        raise not_found("webhook", name)
    return found


def change_webhook(
    tx: Tx, place: Place, name: str, url: str | None, types: list[str] | None, enabled: bool | None
) -> Webhook:
    """What is not said stays. One that is enabled again gets what it missed, in order."""
    found = show_webhook(tx, place, name, lock=True)
    values: dict[str, Any] = {}
    if url is not None:
        values["url"] = checked_url(url)
    if types is not None:
        values["types"] = list(checked_types(types))
    if enabled is not None:
        values["disabled_at"] = None if enabled else found.disabled_at or tx.now
    if not values:
        raise invalid("There is nothing to change.", "Say `url`, `types` or `enabled`.")
    changed = webhooks.change(tx, found.id, **values)
    _record(tx, "webhook.change", "webhook.changed", changed, changed=sorted(values))
    return changed


def remove_webhook(tx: Tx, place: Place, name: str) -> None:
    found = show_webhook(tx, place, name, lock=True)
    webhooks.remove(tx, found.id)
    _record(tx, "webhook.remove", "webhook.removed", found)


def rotate_secret(tx: Tx, place: Place, name: str, overlap_seconds: int) -> tuple[Webhook, str]:
    found = show_webhook(tx, place, name, lock=True)
    rotated, secret = webhooks.rotate(tx, found.id, tx.now + timedelta(seconds=overlap_seconds))
    _record(tx, "webhook.rotate", "webhook.changed", rotated, overlap_seconds=overlap_seconds)
    return rotated, secret


def list_deliveries(
    tx: Tx, place: Place, name: str, state: str | None, before: int | None, limit: int
) -> list[Delivery]:
    return deliveries.deliveries(tx, show_webhook(tx, place, name).id, state, before, limit)


def replay_delivery(tx: Tx, place: Place, name: str, delivery_id: str) -> int:
    found = show_webhook(tx, place, name)
    delivery = deliveries.delivery(tx, found.id, delivery_id)
    if delivery is None:
        raise not_found("delivery", delivery_id)
    _record(tx, "webhook.replay", None, found, delivery=delivery_id)
    return deliveries.replay(tx, found.id, [(delivery.project_id, delivery.seq, delivery.type)])


def replay_range(tx: Tx, place: Place, name: str, feed: str | None, first: int, last: int) -> int:
    """The events of a feed with these numbers, as far as the webhook wants their types."""
    found = show_webhook(tx, place, name)
    if last < first or last - first >= MOST_REPLAYED:
        raise invalid(f"At most {MOST_REPLAYED} events are sent again at once.", "Say a range from first to last.")
    project_id = _feed(tx, place, feed)
    range_ = events.events(tx, project_id, first - 1, last - first + 1)
    again = [(e.project_id, e.seq, e.type) for e in range_ if e.seq <= last and wants(found.types, e.type)]
    _record(tx, "webhook.replay", None, found, project=project_id, first=first, last=last)
    return deliveries.replay(tx, found.id, again)


def _feed(tx: Tx, place: Place, project: str | None) -> str:
    if place.project_id is not None:
        if project not in (None, place.project_id):
            raise invalid("A project's webhook has the events of its own project only.", "Leave `feed` out.")
        return place.project_id
    for found in identity.projects_of(tx, place.org_id):
        if project in (found.id, found.slug):
            return found.id
    raise not_found("project", project) if project else invalid("Which project?", "An org has a feed per project.")


def checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        plain = parts.username is None and parts.password is None and not parts.fragment and url.isascii()
        fits = plain and parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits:
        raise invalid(
            "This is not an address that can be sent to.",
            "It looks like https://hooks.example.org/gpuaas, without a name and password.",
            code="bad_webhook_url",
        )
    return url


def checked_types(types: list[str]) -> tuple[str, ...]:
    for wanted in types:
        if not is_filter(wanted):
            nouns = sorted({type.partition(".")[0] + ".*" for type in EVENTS})
            raise invalid(
                f"There are no events of type {wanted!r}.",
                f"Use '*', {', '.join(nouns)}, or a type from /api/v1/asyncapi.json.",
                code="unknown_event_type",
            )
    return tuple(dict.fromkeys(types))


def _record(tx: Tx, action: str, event: str | None, webhook: Webhook, **data: Any) -> None:
    about = {"org_id": webhook.org_id, "kind": "webhook", "id": webhook.id, "name": webhook.name}
    tx.audit(action, project_id=webhook.project_id, **about, **data)
    if event is not None and webhook.project_id is not None:
        tx.emit(event, project_id=webhook.project_id, **about)
