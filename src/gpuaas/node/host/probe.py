"""Tries on this kernel what an allocation will need, in a process and a mount namespace of its own, and prints JSON:
for each thing an empty string, or why it does not work.

    python -m gpuaas.node.host.probe DIRECTORY     an empty directory on the file system of the state directory
"""

import base64
import contextlib
import json
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.mounts import erofs, idmaps, mounts

_UID = 200_000
# An EROFS image with an empty root directory, made by mkfs.erofs 1.5.
_EROFS = base64.b85decode(
    "c-muN7zLwX6pU2x=;7A~=?karVg|B#7*rS-v8Z9ht(}ol`&oeats@hIG?f1z2$1DfptJ-76PzsxWb5hajYi%m7zLwX6pVsVFbYP&C>RAK0s#9F40!"
)


def user_namespaces(directory: Path) -> None:
    os.close(idmaps.user_namespace(_UID))


def overlay(directory: Path) -> None:
    """A layer over an idmapped base, on the file system where both will be."""
    lower, mapped, upper, work, merged = (directory / name for name in ("lower", "mapped", "upper", "work", "merged"))
    for path in (lower, mapped, upper, work, merged):
        path.mkdir()
    (lower / "file").touch()
    namespace = idmaps.user_namespace(_UID)
    base = mounts.idmapped(lower, namespace, mounts.Attribute.READ_ONLY)
    mounts.attach(base, mapped)
    options = {"lowerdir": str(mapped), "upperdir": str(upper), "workdir": str(work)}
    mounts.attach(mounts.filesystem("overlay", options, mounts.Attribute.NONE), merged)
    owner = (merged / "file").stat().st_uid
    if owner != _UID:
        raise HostError("look at", "the overlay", f"its file belongs to {owner} instead of {_UID}")
    (merged / "file").write_text("copied up")


def images(directory: Path) -> None:
    """As runtimes are mounted: from the file itself, or through a loop device."""
    target = directory / "erofs"
    target.mkdir()
    image, backing = _image(directory)
    mounts.attach(erofs.mounted(image, backing), target)


def images_from_files(directory: Path) -> None:
    erofs.from_file(_image(directory)[1])


def _image(directory: Path) -> tuple[Path, int]:
    image = directory / "image"
    image.write_bytes(zlib.decompress(_EROFS))
    return image, os.open(image, os.O_RDONLY | os.O_CLOEXEC)


PROBES: dict[str, Callable[[Path], None]] = {
    "user_namespaces": user_namespaces,
    "overlay": overlay,
    "images_from_files": images_from_files,
    "images": images,
}


def main(directory: Path) -> None:
    answers = {}
    with contextlib.suppress(OSError):  # its absence shows in every probe
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("none", "/", kernel.MS_REC | kernel.MS_PRIVATE)
    for name, probe in PROBES.items():
        try:
            probe(directory)
            answers[name] = ""
        except HostError as error:
            answers[name] = str(error)
        except OSError as error:
            answers[name] = str(error)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
