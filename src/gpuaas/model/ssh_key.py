"""SSH public keys: parsed, checked, written again by us. Type and blob survive; options and comments do not."""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from gpuaas.kit.errors import Problem

MAX_LINE = 16 * 1024
MIN_RSA_BITS = 2048
PLAIN_TYPES = {
    "ssh-ed25519": 2,  # how many length-prefixed fields the blob has
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "ssh-rsa": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
_SIZES = {"ssh-ed25519": 32, "sk-ssh-ed25519@openssh.com": 32}
_POINTS = {"nistp256": 65, "nistp384": 97, "nistp521": 133}


@dataclass(frozen=True)
class PublicKey:
    type: str
    blob: str
    fingerprint: str


def parse(line: str) -> PublicKey:
    """One public key as OpenSSH writes it: `type base64 [comment]`."""
    line = line.strip()
    if len(line) > MAX_LINE or not line.isprintable():
        raise _refused("it must be one line of at most 16 KiB, without control characters")
    kind, _, rest = line.partition(" ")
    if kind.startswith("-----BEGIN") or "PRIVATE KEY" in line:
        raise _refused("this looks like a private key, which must stay with you; send the .pub file")
    if kind not in PLAIN_TYPES:
        raise _refused(f"its type must be one of {', '.join(PLAIN_TYPES)}, with no options before it")
    encoded = rest.strip().partition(" ")[0]
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("its second word is not base64") from None
    fields = _fields(raw)
    if fields is None or len(fields) != PLAIN_TYPES[kind] or fields[0] != kind.encode():
        raise _refused("its content does not match its type")
    _check_content(kind, fields)
    blob = base64.b64encode(raw).decode()
    try:
        load_ssh_public_key(f"{kind} {blob}".encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _refused("its numbers are not a key: OpenSSH would not take it either") from None
    fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
    return PublicKey(kind, blob, fingerprint)


def _fields(raw: bytes) -> list[bytes] | None:
    fields, at = [], 0
    while at < len(raw):
        if at + 4 > len(raw):
            return None
        (size,) = struct.unpack_from(">I", raw, at)
        at += 4
        if at + size > len(raw):
            return None
        fields.append(raw[at : at + size])
        at += size
    return fields


def _check_content(kind: str, fields: list[bytes]) -> None:
    if kind in _SIZES and len(fields[1]) != _SIZES[kind]:
        raise _refused("its content has the wrong size")
    if kind.startswith(("ecdsa-", "sk-ecdsa-")):
        curve = kind.removeprefix("sk-").removeprefix("ecdsa-sha2-").partition("@")[0]
        if fields[1] != curve.encode() or len(fields[2]) != _POINTS[curve] or fields[2][:1] != b"\x04":
            raise _refused("its curve point does not match its type")
    if kind == "ssh-rsa":
        exponent, modulus = (int.from_bytes(field, "big") for field in fields[1:3])
        if modulus.bit_length() < MIN_RSA_BITS or modulus.bit_length() > 16384 or exponent < 3:
            raise _refused(f"an RSA key needs {MIN_RSA_BITS} to 16384 bits; ed25519 is shorter and safer")


def _refused(why: str) -> Problem:
    return Problem(
        "invalid_ssh_key",
        422,
        f"This is not an SSH public key we accept: {why}.",
        "Make one with `ssh-keygen -t ed25519` and send the content of the .pub file.",
    )
