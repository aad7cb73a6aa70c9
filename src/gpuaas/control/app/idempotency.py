"""One key, one effect: the answer is kept in the transaction of the change, and given again to a retry."""

import hashlib
from collections.abc import Callable

from gpuaas.control.store import idempotency
from gpuaas.control.store.idempotency import Answer
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem


def request_hash(method: str, path: str, body: bytes) -> bytes:
    return hashlib.sha256(f"{method} {path}\n".encode() + body).digest()


def once(tx: Tx, caller: str, key: str, hashed: bytes, work: Callable[[], Answer]) -> Answer:
    ours, earlier = idempotency.earlier(tx, caller, key)
    if not ours:
        raise Problem(
            "in_progress",
            409,
            "A request with this Idempotency-Key is being worked on.",
            "Wait a moment and send the same request again to get its answer.",
            extra={"retry_after": 1},
        )
    if earlier is None:
        answer = work()
        idempotency.keep(tx, caller, key, answer)
        return answer
    if bytes(earlier.request_hash) != hashed:
        raise Problem(
            "idempotency_key_reused",
            422,
            "This Idempotency-Key was used for another request.",
            "Use a new key for a new request.",
        )
    if earlier.body is None:
        raise Problem(
            "secret_already_shown",
            409,
            "This request was carried out before, and its secret was shown then.",
            "Revoke what it made and ask again with a new Idempotency-Key.",
        )
    return earlier
