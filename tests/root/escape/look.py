"""Runs inside a machine: searches all that can be read in /proc and /sys, names and links included, for words.

    python3 look.py '["word"]'

Answers with the paths where one was found.
"""

import json
import os
import sys

MOST_BYTES = 1 << 20
# Of each process: thousands of entries that say the same as those next to them. And devices by another name.
SKIPPED = {"task", "map_files", "cwd", "root"}
words = [word.encode() for word in json.loads(sys.argv[1])]


def read(path: bytes) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    data = b""
    try:
        while len(data) < MOST_BYTES and (part := os.read(fd, 65536)):
            data += part
    except OSError:
        pass
    finally:
        os.close(fd)
    return data


def seen(path: bytes) -> bytes:
    if os.path.islink(path):
        try:
            return os.readlink(path)
        except OSError:
            return b""
    return read(path)


found, files = [], 0
mine = (b"/proc/self/", b"/proc/thread-self/", b"/proc/%d/" % os.getpid())  # has the words as arguments
for top in (b"/proc", b"/sys"):
    for directory, names, others in os.walk(top):
        names[:] = [name for name in names if name.decode() not in SKIPPED]
        for name in (*names, *others):
            path = directory + b"/" + name
            files += 1
            text = name + b"\n" + (b"" if name in names and not os.path.islink(path) else seen(path))
            if not path.startswith(mine) and any(word in text for word in words):
                found.append(path.decode(errors="replace"))
own = [f"/proc/self/{name}" for name in ("mountinfo", "mounts", "mountstats", "cgroup", "cpuset", "status", "maps")]
found += [path for path in own if any(word in read(path.encode()) for word in words)]
print(json.dumps({"found": found, "files": files}))
