"""The base as a root file system: Debian packages unpacked, none of their scripts run. Kept per digest."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from gpuaas.runtimes.build.debs import unpack_deb
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.shelf import Shelf
from gpuaas.runtimes.unpack import Unpacking, merged

_LEAVE_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
_MERGED = ("bin", "sbin", "lib", "lib64")
_ACCOUNTS = "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
_FORMAT = 1


def base_of(artifacts: Iterable[Artifact], shelf: Shelf) -> Path:
    """Where it is, or would be."""
    listed = sorted(artifacts, key=lambda each: each.name)
    text = f"{_FORMAT}\n" + "\n".join(each.digest for each in listed)
    return shelf.path / "bases" / hashlib.sha256(text.encode()).hexdigest()


def ensure_base(artifacts: Iterable[Artifact], shelf: Shelf, work: Path) -> Path:
    listed = sorted(artifacts, key=lambda each: each.name)
    final = base_of(listed, shelf)
    if final.exists():
        return final
    made = work / "base"
    unpacking = Unpacking(made, leave_out=_LEAVE_OUT)
    for artifact in listed:
        unpack_deb(shelf.artifact(artifact.digest), unpacking, merged)
    (made / "etc").mkdir(exist_ok=True)
    (made / "etc" / "passwd").write_text(_ACCOUNTS)
    (made / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
    for name in _MERGED:
        (made / "usr" / name).mkdir(exist_ok=True)
    for link, target in (("usr/bin/sh", "dash"), ("usr/bin/awk", "mawk")):
        if not (made / link).is_symlink():
            (made / link).symlink_to(target)
    try:
        os.rename(made, final)
    except OSError:
        if not final.exists():
            raise
    return final
