"""Sizes as people write them: 512MB is 512,000,000 bytes, 512MiB is 536,870,912. Anything else is no size."""

import re

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))? ?([A-Za-z]{1,3})", re.ASCII)


def parse_bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[3].upper() not in _UNITS:
        return None
    unit = _UNITS[match[3].upper()]
    fraction = int(match[2]) * unit // 10 ** len(match[2]) if match[2] else 0
    return int(match[1]) * unit + fraction


def show_bytes(count: int) -> str:
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.1f} {unit}"
    return f"{count} B"
