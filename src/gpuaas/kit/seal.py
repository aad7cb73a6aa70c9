"""Seals what has to be read again, and must not be readable by whoever has only the database or a dump of it.

A text is sealed for one place (its `about`): moved to another one, it cannot be opened. Without a key nothing is
sealed; what was kept unsealed before there was a key stays readable.
"""

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_PREFIX = "sealed:1:"
_NONCE_BYTES = 12


class Seal:
    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._cipher = AESGCM(key) if key is not None else None

    @property
    def has_key(self) -> bool:
        return self._cipher is not None

    def close(self, text: str, about: str) -> str:
        if self._cipher is None:
            return text
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, text.encode(), about.encode())
        return _PREFIX + base64.b64encode(nonce + sealed).decode()

    def open(self, kept: str, about: str) -> str | None:
        """None: it was sealed with another key, or for another place, or somebody has changed it."""
        if not kept.startswith(_PREFIX):
            return kept
        if self._cipher is None:
            return None
        try:
            raw = base64.b64decode(kept.removeprefix(_PREFIX), validate=True)
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], about.encode()).decode()
        except (InvalidTag, ValueError, binascii.Error):
            return None


def key_in(file: Path) -> bytes:
    """From 64 hexadecimal digits. ValueError says what is wrong with them."""
    try:
        key = bytes.fromhex(file.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{file} does not hold a key of {2 * KEY_BYTES} hexadecimal digits")
    return key


def own_key(file: Path) -> bytes:
    """Made when it is first asked for; only its owner reads it."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return key_in(file)
    with os.fdopen(fd, "w") as made:
        made.write(os.urandom(KEY_BYTES).hex() + "\n")
        made.flush()
        os.fsync(made.fileno())
    return key_in(file)
