"""Whether an image that anybody may have made is one that the kernel of a node can be given.

It is unpacked in a sandbox, every file is judged and compared with the manifest, and then the file system is written
anew from these files: only the very bytes that mkfs.erofs makes of them pass. So whatever a node mounts was written by
our own tools, and no crafted one ever reaches a kernel.
"""

import hashlib
from pathlib import Path

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import activate, tools, tree, untrusted
from gpuaas.runtimes.build.image import write_image
from gpuaas.runtimes.manifest import Manifest
from gpuaas.runtimes.tree import LIMITS, Limits, refused

PROGRAMS = ("bwrap", "fsck.erofs", "mkfs.erofs")
_IMAGE = "image.erofs"


def examine(manifest: Manifest, image: Path, work: Path, limits: Limits = LIMITS) -> None:
    """`image` has the digest that the manifest names. `work`: room for its tree and for another image."""
    if missing := [name for name in PROGRAMS if name in tools.missing()]:
        said = f"This server cannot look into images: it does not have {', '.join(missing)}."
        raise Problem("cannot_examine", 503, said, "An operator has to install erofs-utils and bubblewrap.")
    if manifest.tree_bytes > limits.total_bytes or manifest.entries > limits.entries:
        raise refused(_IMAGE, f"it has more than {limits.total_bytes} bytes or {limits.entries} entries unpacked")
    made = work / "tree"
    made.mkdir()
    untrusted.unpack(image, made, manifest.tree_bytes, manifest.entries)
    entries = tree.examine(made, limits, unique_names=True)
    if hashlib.sha256(msgspec.json.encode(entries)).hexdigest() != manifest.files:
        raise refused(_IMAGE, "it does not hold the files that the manifest names")
    if (sum(each.size for each in entries), len(entries)) != (manifest.tree_bytes, manifest.entries):
        raise refused(_IMAGE, "it does not have the size that the manifest says")
    script = made / activate.FILE
    if not script.is_file() or script.read_text(errors="replace") != activate.script(manifest.recipe):
        raise refused(activate.FILE, "it is not the one that the recipe gives")
    made.chmod(0o755)
    with (work / "log").open("wb") as log:
        again = write_image(made, work / "again", manifest.lock, log)
    if again != manifest.layers[0].sha256:
        said = "image.erofs is not what mkfs.erofs makes of its files here."
        hint = "Build it with the version of erofs-utils that the server has, and with this version of gpuaas."
        raise Problem("refused_content", 422, said, hint)
