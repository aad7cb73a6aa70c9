"""Makes the tree of an image readable for a while: mounted as root, unpacked by fsck.erofs for everybody else."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import process
from gpuaas.runtimes.shelf import remove_tree


@contextmanager
def mounted(image: Path, work: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(dir=work))
    try:
        if os.geteuid() == 0 and _mount(image, place):
            try:
                yield place
            finally:
                subprocess.run(["umount", "--", str(place)], check=False, capture_output=True)
        else:
            unpack(image, place)
            yield place
    finally:
        remove_tree(place)


def unpack(image: Path, place: Path) -> None:
    """Only reads the image: no kernel looks at it."""
    try:
        process.run(
            ["fsck.erofs", f"--extract={place}", "--overwrite", "--no-preserve", str(image)],
            what="fsck.erofs",
        )
    except Problem as problem:
        said = f"{image.name} is not a sound image."
        raise Problem("damaged_image", 422, said, "Build or fetch it again.", detail=problem.detail) from problem


def _mount(image: Path, place: Path) -> bool:
    """From the file itself where the kernel can (6.12), else over a loop device."""
    flags = "ro,nosuid,nodev"
    for options in (flags, f"{flags},loop"):
        command = ["mount", "-i", "-t", "erofs", "-o", options, "--", str(image), str(place)]
        if subprocess.run(command, check=False, capture_output=True, env=process.environment()).returncode == 0:
            return True
    return False
