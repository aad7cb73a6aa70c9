"""Ed25519 keys that sign an index. The private ones belong on media that no mirror ever sees."""

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey

from gpuaas.kit.errors import Problem, invalid

_MOST_BYTES = 64 * 1024


def make(file: Path) -> SSlibKey:
    """A new one in FILE, for nobody else to read; its public half in FILE.pub. Never over an old one."""
    private = Ed25519PrivateKey.generate()
    _write(file, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write(file.with_name(f"{file.name}.pub"), public, 0o644)
    return SSlibKey.from_crypto(private.public_key())


def signer(file: Path) -> CryptoSigner:
    try:
        found = load_pem_private_key(_read(file), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise invalid(f"{file} is no private key: {error}.", _HINT) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise invalid(f"{file} is not an Ed25519 key.", _HINT)
    return CryptoSigner(found)


def public(file: Path) -> SSlibKey:
    try:
        found = load_pem_public_key(_read(file))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise invalid(f"{file} is no public key: {error}.", _HINT) from error
    if not isinstance(found, Ed25519PublicKey):
        raise invalid(f"{file} is not an Ed25519 key.", _HINT)
    return SSlibKey.from_crypto(found)


_HINT = "Make a pair with `gpuaas runtime index key FILE`: FILE signs, FILE.pub is what others see."


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES)
    except OSError as error:
        raise invalid(f"{file}: {error.strerror or error}.", _HINT) from error


def _write(file: Path, data: bytes, mode: int) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise Problem("already_here", 409, f"{file} is there already.", "A key is never overwritten.") from error
    except OSError as error:
        raise invalid(f"{file}: {error.strerror or error}.") from error
    with os.fdopen(fd, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
