"""What a machine believes about itself: its names and its resolvers. Mounted read-only over its own files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gpuaas.node.host.kernel import asking

DIRECTORY = "etc"


def write(live: Path, id: str, hostname: str, address: str, resolvers: Sequence[str]) -> dict[Path, str]:
    """Written before each start. Answers where each file belongs inside."""
    hosts = f"127.0.0.1 localhost\n{address} {hostname}\n::1 localhost ip6-localhost\n"
    files = {
        "hosts": hosts,
        "hostname": f"{hostname}\n",
        "resolv.conf": "".join(f"nameserver {resolver}\n" for resolver in resolvers),
        "machine-id": hashlib.sha256(id.encode()).hexdigest()[:32] + "\n",
    }
    directory = live / DIRECTORY
    with asking("write", f"the files of {id}"):
        directory.mkdir(mode=0o755, exist_ok=True)
        directory.chmod(0o755)
        for name, text in files.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o644)
    return {directory / name: f"/etc/{name}" for name in files}
