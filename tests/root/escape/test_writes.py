"""T2: who on the host writes into a tree that a tenant can write: only the OCI runtime, and only mount points.

What it finds in their place instead is in test_links_at_restart.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from root.conftest import needs
from root.escape.conftest import Launch

pytestmark = needs("runc", "catatonit", "ssh", "strace")
LINE = re.compile(r"^\d+<(?P<who>.*?)> +(?P<call>\w+)\((?P<rest>.*)$")
WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC)")
CHANGING = re.compile(r"^(mkdir|mknod|symlink|link|rename|unlink|rmdir|.?chmod|.?chown|truncate|.?setxattr|utime)")
MOUNT_POINTS = re.compile(r"/(dev|proc|sys|run|etc/(hosts|hostname|resolv\.conf|machine-id))\b")


@contextmanager
def traced(log: Path, *pids: int) -> Iterator[None]:
    """Every path that these processes and their children name, with the paths behind their handles."""
    words = ["strace", "-f", "-Y", "-y", "-s", "4096", "-e", "trace=%file", "-o", str(log)]
    tracer = subprocess.Popen([*words, *(word for pid in pids for word in ("-p", str(pid)))], stderr=subprocess.DEVNULL)
    while not all(f"TracerPid:\t{tracer.pid}" in Path(f"/proc/{pid}/status").read_text() for pid in pids):
        time.sleep(0.02)
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(20)


def test_nobody_writes_into_the_tenants_tree(tenant: Launch, tmp_path: Path) -> None:
    machine = tenant(people=2, launch=False)
    helper = machine.host._namespaces.helper._process
    assert helper is not None
    log = tmp_path / "trace"
    with traced(log, os.getpid(), helper.pid):
        machine.launch()
        assert machine.ssh("true").returncode == 0
        machine.admit(machine.people[0])
        machine.restart()
        machine.admit(*machine.people)
        machine.release()
    tree = str(machine.live / "rootfs")
    layer = f"{machine.node.config.paths.layer(machine.id)}/"
    written: set[tuple[str, str]] = set()
    seen = 0
    for line in log.read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if match is None or not (tree in line or layer in line or f"{machine.live}/disk" in line):
            continue
        seen += 1
        if WRITING.search(match["rest"]) or CHANGING.match(match["call"]):
            written.add((match["who"], f"{match['call']}({match['rest']}"))
    assert seen > 10, "nothing was traced"
    disk = f"{machine.live}/disk"
    assert [each for each in sorted(written) if not _expected(*each, tree=tree, disk=disk, layer=layer)] == []


def _expected(who: str, call: str, *, tree: str, disk: str, layer: str) -> bool:
    if who.startswith("runc") and tree in call:
        return MOUNT_POINTS.search(call.partition(tree)[2]) is not None
    # Of the platform's own: where the tree is mounted, the layer's directory, and the disk image as a whole.
    own = [f'"{tree}"', f'"{disk}"', f'"{disk}/upper"', f'"{disk}/work"', f"{layer}disk.ext4", f'"{layer}']
    return any(each in call for each in own) or not any(f"{each}/" in call for each in (tree, disk, layer[:-1]))
