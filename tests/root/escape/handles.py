"""Runs as root inside a machine: looks into every process as soon as it is there, for words of the host's.

    python3 handles.py SECONDS FILE-WITH-THE-WORDS

Answers with what was found, and with how many processes were seen.
"""

import json
import os
import sys
import time
from contextlib import suppress

deadline = time.monotonic() + float(sys.argv[1])
with open(sys.argv[2]) as file:
    words = [word.encode() for word in json.load(file)]
found: set[str] = set()
seen: set[tuple[str, str]] = set()


def look(pid: str) -> None:
    for name in ("cmdline", "environ", "maps", "status", "cgroup", "comm", "auxv"):
        with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
            note(name, file.read(1 << 20))
    for name in ("exe", "cwd", "root"):
        with suppress(OSError):
            note(name, os.readlink(f"/proc/{pid}/{name}").encode())
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            note("fd", os.readlink(f"/proc/{pid}/fd/{number}").encode())
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        seen.add((pid, file.read(100).decode(errors="replace")))


def note(name: str, data: bytes) -> None:
    for word in words:
        at = data.find(word)
        if at >= 0:
            found.add(f"{name}: {data[max(0, at - 40) : at + 60]!r}")


print("there", flush=True)
mine = str(os.getpid())
while time.monotonic() < deadline:
    for pid in os.listdir("/proc"):
        if pid.isdigit() and pid != mine:
            look(pid)
names = sorted({name for _, name in seen})
print(json.dumps({"found": sorted(found), "processes": len({pid for pid, _ in seen}), "names": names}))
