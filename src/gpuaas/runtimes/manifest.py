"""What an image is, in one file: everything else about it by digest."""

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.recipe import Recipe

FORMAT = 1


class Layer(Struct, frozen=True):
    sha256: str
    size: int
    media_type: str = "application/vnd.gpuaas.runtime.erofs"


class Manifest(Struct, frozen=True):
    bundle: str
    version: str
    architecture: str
    layers: tuple[Layer, ...]
    recipe: Recipe  # flat
    lock: str  # sha256 of what the lock names
    files: str  # sha256 of files.json
    sbom: str  # sha256 of sbom.json
    tree_bytes: int
    entries: int
    built_with: str
    format: int = FORMAT

    @property
    def id(self) -> str:
        return f"{self.bundle}:{self.version}"


def decode(data: bytes) -> Manifest:
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem("refused_content", 422, f"manifest.json cannot be read: {error}.") from error
    if found.format != FORMAT:
        raise Problem("refused_content", 422, f"manifest.json has format {found.format}, known is {FORMAT}.")
    if (found.bundle, found.version) != (found.recipe.name, found.recipe.version):
        raise Problem("refused_content", 422, f"manifest.json calls itself {found.id}, its recipe {found.recipe.id}.")
    if len(found.layers) != 1:
        raise Problem("refused_content", 422, "manifest.json has no layer, or more than this version can use (1).")
    return found
