"""For receivers: is this request really from the server, and is it news?"""

import time
from collections.abc import Mapping

import msgspec

from gpuaas.sdk.errors import GpuaasError
from gpuaas.wire import signature
from gpuaas.wire.api import WebhookEvent


class NotGenuine(GpuaasError):
    """Signed with another secret, altered on the way, or too old."""


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = signature.TOLERANCE_SECONDS,
    now: float | None = None,
) -> WebhookEvent:
    """The event in a webhook's request, or NotGenuine. Events come at least once: remember `id` to drop repeats."""
    said = {name.lower(): value for name, value in headers.items()}
    given = said.get(signature.TIMESTAMP.lower(), "")
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise NotGenuine(f"There is no usable {signature.TIMESTAMP} header.")
    if not signature.fits(secret, said.get(signature.SIGNATURE.lower(), ""), int(given), body):
        raise NotGenuine("The signature does not fit the body and this secret.")
    if abs((time.time() if now is None else now) - int(given)) > tolerance_seconds:
        raise NotGenuine("The request is too old, or one of the clocks is wrong.")
    return msgspec.json.decode(body, type=WebhookEvent)
