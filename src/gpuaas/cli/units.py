"""Durations and sizes as people write them. For click's `type=`."""

import re

import click

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MIB = {"": 1, "m": 1, "mib": 1, "g": 1024, "gib": 1024, "t": 1024**2, "tib": 1024**2}


def duration(text: str) -> int:
    """In seconds."""
    return _scaled(text, _SECONDS, "a duration like 90d, 12h or 30m")


def memory(text: str) -> int:
    """In MiB."""
    return _scaled(text, _MIB, "a size like 64GiB or 512MiB")


def _scaled(text: str, sizes: dict[str, int], what: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}) ?([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in sizes:
        raise click.BadParameter(f"{text!r} is not {what}.")
    return int(match[1]) * sizes[match[2]]
