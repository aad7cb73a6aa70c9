"""One Debian package, taken apart: its files, never its scripts. dpkg-deb only decompresses."""

import subprocess
from pathlib import Path

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.process import environment
from gpuaas.runtimes.unpack import Layout, Unpacking


def unpack_deb(file: Path, unpacking: Unpacking, layout: Layout) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()) as process:
        assert process.stdout is not None
        try:
            unpacking.tar(process.stdout, layout=layout)
            process.stdout.read()  # what tarfile leaves of the padding
        finally:
            process.stdout.close()
    if process.returncode != 0:
        raise Problem("build_failed", 500, f"{file.name} is no Debian package.", "Build with --relock.")
