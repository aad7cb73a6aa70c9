"""The agent's own look at a spec: it is root, so it trusts no field because of where it came from."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gpuaas.kit.ids import PATTERN
from gpuaas.wire.node import MAX_SPEC_BYTES, AllocationBody, Failure, Spec

MAX_GPUS = 256
MAX_KEYS = 1000
MAX_NUMBER = 2**53
_ID = re.compile(PATTERN)
_KEY = re.compile(r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9-]+@openssh\.com) [A-Za-z0-9+/=]+( .*)?")


def is_named(spec: Spec) -> bool:
    """Whether it is clear which version of which object is meant; otherwise there is nothing to report about."""
    numbers = (spec.incarnation, spec.generation)
    well_named = isinstance(spec.id, str) and _ID.fullmatch(spec.id) is not None
    return well_named and all(type(number) is int and 0 <= number <= MAX_NUMBER for number in numbers)


def refusal(spec: Spec) -> Failure | None:
    """Why this spec is not carried out, or None."""
    if spec.body is None:
        return None
    try:
        plain = msgspec.to_builtins(spec.body)
        msgspec.convert(plain, AllocationBody)
        size = len(msgspec.json.encode(plain))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return _bad("does not have the form of a spec", f"{type(error).__name__}: {error}")
    if size > MAX_SPEC_BYTES:
        return _bad("is too large", f"{size} bytes")
    for text in _texts(plain):
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            return _bad("has control characters", ascii(text))
    return _reason(spec.body)


def _reason(body: AllocationBody) -> Failure | None:
    gpus = [gpu for slot in body.slots for gpu in slot.gpus]
    if len(set(gpus)) != len(gpus) or len({slot.id for slot in body.slots}) != len(body.slots):
        return _bad("names a slot or a GPU twice")
    if len(gpus) > MAX_GPUS or len(body.keys) > MAX_KEYS:
        return _bad("has too many GPUs or keys", f"{len(gpus)} GPUs, {len(body.keys)} keys")
    # These become parts of paths on the host.
    for label in (body.name, body.image, *gpus):
        if ".." in label or "//" in label:
            return _bad("has a name that is a path", ascii(label))
    if findings := _runtimes(body):
        return _bad(findings)
    if body.ssh_port < 1024:
        return _bad("asks for a reserved port", str(body.ssh_port))
    for key in body.keys:
        if _KEY.fullmatch(key.line) is None:
            return _bad("has a key that is not a plain public key", key.fingerprint)
    return None


def _runtimes(body: AllocationBody) -> str:
    """They become directories, beside a link of this name."""
    if any(each.version == "current" for each in body.runtimes):
        return "has a runtime with the version 'current'"
    versions = [(each.bundle, each.version) for each in body.runtimes]
    current = [each.bundle for each in body.runtimes if each.current]
    if len(set(versions)) != len(versions) or len(set(current)) != len(current):
        return "names a runtime twice, or has two current versions of one"
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _bad(what: str, detail: str = "") -> Failure:
    return Failure("bad_spec", f"The node refused what it was asked for: it {what}.", detail[:500])
