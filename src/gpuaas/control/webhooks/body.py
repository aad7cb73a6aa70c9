"""What is sent: the event as the API shows it, with an id by which a receiver knows that it has seen it before."""

import base64
import hashlib

import msgspec

from gpuaas.control.store.events import Event
from gpuaas.wire.api import WebhookEvent


def encoded(event: Event) -> bytes:
    return msgspec.json.encode(WebhookEvent(**event.__dict__, id=event_id(event)))


def event_id(event: Event) -> str:
    """The same for every attempt, replay and replica; another one for whatever a restored database numbers the same."""
    said = f"{event.project_id}|{event.seq}|{event.at.timestamp()}|{event.type}|{event.object_id}"
    return "ev-" + base64.b32encode(hashlib.sha256(said.encode()).digest()[:10]).decode().lower()
