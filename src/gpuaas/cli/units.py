"""Durations and sizes as people write them. For click's `type=`."""

import re

import click

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 2**20, "m": 2**20, "mib": 2**20, "g": 2**30, "gib": 2**30, "t": 2**40, "tib": 2**40}
_BYTES |= {"mb": 10**6, "gb": 10**9, "tb": 10**12}


def duration(text: str) -> int:
    """In seconds."""
    return _scaled(text, _SECONDS, "a duration like 90d, 12h or 30m")


def memory(text: str) -> int:
    """In MiB. 2GB is 2,000,000,000 bytes; what is no whole number of MiB gets the part of one that is missing."""
    return -(-_scaled(text, _BYTES, "a size like 64GiB, 64GB or 512MiB") // 2**20)


def _scaled(text: str, sizes: dict[str, int], what: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}) ?([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in sizes:
        raise click.BadParameter(f"{text!r} is not {what}.")
    return int(match[1]) * sizes[match[2]]
