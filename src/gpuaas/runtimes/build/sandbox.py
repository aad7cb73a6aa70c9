"""bubblewrap around everything that is run: no network, nothing of the host but the base, one place to write.

The tree is where it will be on every machine, so that paths which end up in files are right.
"""

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from gpuaas.runtimes import process

# From the file itself where the kernel can (6.12), else over a loop device.
_MOUNT = """
for how in ro,nosuid,nodev ro,nosuid,nodev,loop; do
    if mount -i -t erofs -o "$how" -- "$1" "$2" 2>/dev/null; then shift 2; exec "$@"; fi
done
echo "this machine cannot mount EROFS images" >&2; exit 1
"""
EPOCH = 1577836800  # 2020-01-01: the time of everything in an image


class Sandbox(Struct, frozen=True):
    base: Path  # a root file system: /usr, /etc and their links
    tree: Path
    root: str  # where the tree appears
    environment: Mapping[str, str] = {}
    image: Path | None = None  # mounted at `tree` first, for this one run, where nobody else sees it

    def run(
        self,
        argv: Sequence[str],
        log: IO[bytes] | None = None,
        *,
        writable: bool = False,
        binds: Mapping[Path, str] = {},
        what: str = "",
        timeout_seconds: float = process.TIMEOUT_SECONDS,
        given_up: threading.Event | None = None,
    ) -> str:
        with tempfile.TemporaryDirectory(dir=self.tree.parent) as scratch:
            command = self.command(argv, scratch, writable=writable, binds=binds)
            return process.run(
                command, log, env=self._variables(), what=what, timeout_seconds=timeout_seconds, given_up=given_up
            )

    def command(
        self, argv: Sequence[str], scratch: str, *, writable: bool = False, binds: Mapping[Path, str] = {}
    ) -> list[str]:
        """For whoever runs it in a way of their own, with a directory for what it writes meanwhile."""
        return [*self._mount(), "bwrap", *self._view(scratch, writable), *_bound(binds), "--", *argv]

    def shell(
        self,
        script: str,
        log: IO[bytes] | None = None,
        *,
        writable: bool = False,
        what: str = "",
        given_up: threading.Event | None = None,
    ) -> str:
        argv = ["/bin/sh", "-e", "-u", "-c", script]
        return self.run(argv, log, writable=writable, what=what or script[:60], given_up=given_up)

    def _mount(self) -> list[str]:
        """In a mount namespace of its own: it ends with the run, however that ends."""
        if self.image is None:
            return []
        apart = ["unshare", "--mount", "--propagation", "private", "--"]
        return [*apart, "/bin/sh", "-e", "-c", _MOUNT, "sh", str(self.image), str(self.tree)]

    def _view(self, scratch: str, writable: bool) -> list[str]:
        view = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", "0", "--gid", "0"]
        view += ["--hostname", "build", "--clearenv"]
        view += [part for name, value in self._variables().items() for part in ("--setenv", name, value)]
        for name in ("usr", "etc"):
            view += ["--ro-bind", str(self.base / name), f"/{name}"]
        for name in ("bin", "sbin", "lib", "lib64"):
            view += ["--symlink", f"usr/{name}", f"/{name}"]
        view += ["--proc", "/proc", "--dev", "/dev", "--bind", scratch, "/tmp"]  # noqa: S108 -- inside
        view += ["--bind" if writable else "--ro-bind", str(self.tree), self.root, "--chdir", self.root]
        return view

    def _variables(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp",  # noqa: S108 -- inside
            "TMPDIR": "/tmp",  # noqa: S108 -- inside
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONHASHSEED": "0",
            "SOURCE_DATE_EPOCH": str(EPOCH),
            **self.environment,
        }


def _bound(binds: Mapping[Path, str]) -> list[str]:
    return [part for path, place in binds.items() for part in ("--ro-bind", str(path), place)]
