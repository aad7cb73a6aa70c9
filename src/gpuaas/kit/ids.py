"""Identifiers: a two-letter kind, a dash, 16 characters of [a-z2-7] (80 random bits). Never reused."""

import base64
import random
import re
import secrets

PATTERN = r"^[a-z]{2}-[a-z2-7]{16}$"
_MATCH = re.compile(PATTERN)


class Ids:
    """Where randomness enters. Seeded in the simulation, the system's generator everywhere else."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng

    def token_bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count) if self._rng else secrets.token_bytes(count)

    def new(self, kind: str) -> str:
        return f"{kind}-{base64.b32encode(self.token_bytes(10)).decode().lower()}"

    def secret(self) -> str:
        return base64.urlsafe_b64encode(self.token_bytes(32)).decode().rstrip("=")


def is_id(text: str, kind: str) -> bool:
    return text.startswith(kind + "-") and _MATCH.match(text) is not None and "\n" not in text
