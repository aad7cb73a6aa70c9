"""How a webhook proves where it comes from: HMAC-SHA256 over `timestamp.body`, one signature per valid secret."""

import hashlib
import hmac
from collections.abc import Iterable

EVENT_ID = "Gpuaas-Event-Id"
EVENT_TYPE = "Gpuaas-Event-Type"
DELIVERY = "Gpuaas-Delivery"
ATTEMPT = "Gpuaas-Attempt"
TIMESTAMP = "Gpuaas-Timestamp"
SIGNATURE = "Gpuaas-Signature"
TOLERANCE_SECONDS = 300
_VERSION = "v1="


def signature(secrets: Iterable[str], timestamp: int, body: bytes) -> str:
    """For the header: `v1=...`, and a second one while the secret before is still valid."""
    return ",".join(_VERSION + _digest(secret, timestamp, body) for secret in secrets)


def fits(secret: str, header: str, timestamp: int, body: bytes) -> bool:
    wanted = _VERSION + _digest(secret, timestamp, body)
    given = [part.strip().encode("utf-8", "replace") for part in header.split(",")]
    return any(hmac.compare_digest(wanted.encode(), part) for part in given)


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), str(timestamp).encode() + b"." + body, hashlib.sha256).hexdigest()
