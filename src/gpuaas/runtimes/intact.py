"""Whether an image on the shelf, and the papers that describe it, still have the digests of their manifest."""

import hashlib
from pathlib import Path

from gpuaas.runtimes.manifest import Manifest
from gpuaas.runtimes.shelf import Shelf

CHANGED = "the image was changed"


def findings(manifest: Manifest, place: Path, shelf: Shelf) -> list[str]:
    """What is not as the manifest says, of the image and of the papers in `place`. Reads all of it."""
    (layer,) = manifest.layers
    papers = (("files.json", manifest.files), ("sbom.json", manifest.sbom))
    found = [f"{name} was changed or is missing" for name, wanted in papers if _sha256(place / name) != wanted]
    if layer.sha256 != place.name:
        found.append("manifest.json names another image than its directory")
    sha256 = _sha256(shelf.image(layer.sha256))
    if sha256 != layer.sha256:
        found.append("the image is missing" if sha256 is None else CHANGED)
    return found


def _sha256(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return None
