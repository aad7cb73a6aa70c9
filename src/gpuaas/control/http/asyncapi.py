"""The AsyncAPI document: every event there is, and the three ways to get them. Made from the table in model/event."""

from typing import Any

import msgspec

from gpuaas import __version__
from gpuaas.model.event import EVENTS, EventType
from gpuaas.wire import signature
from gpuaas.wire.api import EventView, WebhookEvent

DESCRIPTION = (
    "Events of projects. Within a project, `seq` counts them without a gap, in the order of their commits; between "
    "projects there is no order. Streams give each event once and resume with Last-Event-ID; webhooks give it at least "
    "once. New types and new fields may come: ignore what you do not know."
)
WEBHOOK = "webhookEvent"
CHANNELS = {
    "project": ("/api/v1/events/follow", "Server-sent events of one project. `id` is the event's `seq`."),
    "org": (
        "/api/v1/orgs/{org}/events/follow",
        "Server-sent events of every project of an organisation. `id` is a position in all of them, and opaque.",
    ),
    "webhook": ("{url}", "A signed POST to an address of yours, per project or organisation."),
}


def document() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "GPUaaS events", "version": __version__, "description": DESCRIPTION},
        "defaultContentType": "application/json",
        "channels": {name: _channel(name) for name in CHANNELS},
        "operations": {
            f"receive{name.capitalize()}Events": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": said,
            }
            for name, (_, said) in CHANNELS.items()
        },
        "components": {
            "messages": {**{type: _message(type, found) for type, found in EVENTS.items()}, WEBHOOK: _webhook()},
            "schemas": _schemas(),
        },
    }


def _channel(name: str) -> dict[str, Any]:
    address, said = CHANNELS[name]
    sent = [WEBHOOK] if name == "webhook" else EVENTS
    messages = {type: {"$ref": f"#/components/messages/{type}"} for type in sent}
    found: dict[str, Any] = {"address": address, "description": said, "messages": messages}
    if "{" in address:
        found["parameters"] = {address.partition("{")[2].partition("}")[0]: {"description": "Of your own."}}
    return found


def _message(type: str, found: EventType) -> dict[str, Any]:
    narrowed = {
        "type": {"const": type},
        "object_kind": {"const": found.kind},
        "data": found.schema(),
    }
    envelope = {"$ref": "#/components/schemas/EventView"}
    return {
        "name": type,
        "title": found.summary,
        "payload": {"allOf": [envelope, {"type": "object", "properties": narrowed}]},
    }


def _webhook() -> dict[str, Any]:
    return {
        "name": WEBHOOK,
        "title": "An event, signed and with an id",
        "description": "`type`, `object_kind` and `data` are those of the message with the name of the type.",
        "headers": _headers(),
        "payload": {"$ref": "#/components/schemas/WebhookEvent"},
    }


def _headers() -> dict[str, Any]:
    """What a webhook's request carries besides."""
    said = {
        signature.EVENT_ID: "The same in every attempt and replay",
        signature.EVENT_TYPE: "The type of the event",
        signature.DELIVERY: "The entry in the delivery log",
        signature.ATTEMPT: "Which try this is, from 1",
        signature.TIMESTAMP: "When it was signed, in seconds since 1970",
        signature.SIGNATURE: "v1= and HMAC-SHA256 over `timestamp.body` in hex, one per valid secret",
    }
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in said.items()},
    }


def _schemas() -> dict[str, Any]:
    _, found = msgspec.json.schema_components([EventView, WebhookEvent], ref_template="#/components/schemas/{name}")
    return dict(found)
