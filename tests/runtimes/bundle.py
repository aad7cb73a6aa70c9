"""Runtimes in one file, as anybody can make them: sound, or with a lie in any part."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from gpuaas.runtimes import activate, process, tree
from gpuaas.runtimes.build.image import write_image
from gpuaas.runtimes.build.sbom import bill
from gpuaas.runtimes.lock.lockfile import Artifact, Lock, lock_digest, recipe_digest
from gpuaas.runtimes.manifest import Layer, Manifest
from gpuaas.runtimes.recipe import Check, Recipe
from gpuaas.runtimes.tree import Entry

MEMBERS = ["manifest.json", "lock.json", "sbom.json", "files.json", "image.erofs"]


class Bundle:
    """A bundle as an attacker makes one: every part can be changed before the next is derived from it, or after."""

    def __init__(self, work: Path, name: str = "tool", version: str = "1.0") -> None:
        self.work = work
        self.tree = work / "content"
        self.tree.mkdir(parents=True)
        self.recipe = Recipe(name, version, verify=(Check("tool"),), environment=(("TOOL_HOME", "${root}"),))
        artifact = Artifact("npm", "tool", "1.0.0", "tool.tgz", f"sha512:{'0' * 128}", "https://registry/tool.tgz")
        self.lock = Lock(self.recipe.id, "amd64", recipe_digest(self.recipe), (), (), (artifact,))
        (self.tree / "bin").mkdir()
        (self.tree / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
        (self.tree / "bin" / "tool").chmod(0o755)
        (self.tree / "bin" / "alias").symlink_to("tool")
        self.script: str | None = None
        self.keep_modes = False
        self.change_manifest: dict[str, Any] = {}
        self.change_papers: dict[str, bytes] = {}
        self.entries: list[Entry] | None = None
        self.image: bytes | None = None
        self.members = list(MEMBERS)

    def write(self, file: Path) -> Path:
        script = activate.script(self.recipe) if self.script is None else self.script
        (self.tree / activate.FILE).write_text(script)
        image = self.image if self.image is not None else self._image()
        entries = self.entries if self.entries is not None else tree.examine(self.tree)
        files, sbom = msgspec.json.encode(entries), msgspec.json.encode(bill(self.recipe, self.lock))
        files = self.change_papers.get("files.json", files)
        manifest = Manifest(
            self.recipe.name,
            self.recipe.version,
            "amd64",
            (Layer(hashlib.sha256(image).hexdigest(), len(image)),),
            self.recipe,
            lock_digest(self.lock),
            hashlib.sha256(files).hexdigest(),
            hashlib.sha256(sbom).hexdigest(),
            sum(each.size for each in entries),
            len(entries),
            "gpuaas test",
        )
        papers = {
            "manifest.json": msgspec.json.encode(msgspec.structs.replace(manifest, **self.change_manifest)),
            "lock.json": msgspec.json.encode(self.lock),
            "sbom.json": sbom,
            "files.json": files,
            "image.erofs": image,
        } | self.change_papers
        with tarfile.open(file, "w") as archive:
            for name in self.members:
                info = tarfile.TarInfo(name)
                data = papers.get(name, b"?")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return file

    def _image(self) -> bytes:
        target = self.work / "made.erofs"
        with (self.work / "log").open("wb") as log:
            if self.keep_modes:
                process.run(["mkfs.erofs", "-zlz4", "--all-root", str(target), str(self.tree)], log)
            else:
                write_image(self.tree, target, lock_digest(self.lock), log)
        return target.read_bytes()


def for_arm64(work: Path) -> Bundle:
    """The same version for another processor."""
    bundle = Bundle(work)
    wants = msgspec.structs.replace(bundle.recipe.requirements, architectures=("amd64", "arm64"))
    bundle.recipe = msgspec.structs.replace(bundle.recipe, requirements=wants)
    bundle.lock = msgspec.structs.replace(bundle.lock, architecture="arm64", recipe=recipe_digest(bundle.recipe))
    bundle.change_manifest = {"architecture": "arm64"}
    (bundle.tree / "bin" / "tool").write_text("#!/bin/sh\necho another processor\n")
    return bundle
