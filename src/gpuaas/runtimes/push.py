"""Sends a runtime that is built here to an OCI registry, as an artifact: nodes fetch its image there, by digest.

config    manifest.json
layers    the image, lock.json, sbom.json, files.json
tag       <bundle>-<version>-<architecture>, with _ for +
"""

import hashlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import Problem
from gpuaas.kit.registry import MANIFEST, Registry
from gpuaas.runtimes.manifest import Manifest
from gpuaas.runtimes.shelf import Shelf
from gpuaas.runtimes.verify import manifest_of, sound

ARTIFACT = "application/vnd.gpuaas.runtime"
_CONFIG = "manifest.json"
_PAPERS = {"lock.json": "lock.v1+json", "sbom.json": "sbom.v1+json", "files.json": "files.v1+json"}
_TITLE = "org.opencontainers.image.title"


class Pushed(Struct, frozen=True):
    runtime: str
    reference: str  # as other tools name it
    sha256: str  # of the image
    sent_bytes: int  # what the registry had already was not sent


def push(
    bundle: str, version: str, shelf: Shelf, registry: Registry, say: Callable[[str], None], architecture: str = ""
) -> Pushed:
    sound(bundle, version, shelf, architecture)
    manifest, place = manifest_of(bundle, version, shelf, architecture)
    image = shelf.image(manifest.layers[0].sha256)
    kinds = {place / name: f"{ARTIFACT}.{kind}" for name, kind in _PAPERS.items()}
    files = {place / _CONFIG: f"{ARTIFACT}.manifest.v1+json", image: manifest.layers[0].media_type, **kinds}
    described = {file: _descriptor(file, kind) for file, kind in files.items()}
    sent = 0
    try:
        for file, about in described.items():
            if not registry.has_blob(about["digest"]):
                say(f"sending {file.name} ({about['size']} bytes)")
                registry.send_blob(about["digest"], file)
                sent += about["size"]
        registry.send_manifest(_tag(manifest), msgspec.json.encode(_artifact(manifest, list(described.values()))))
    except (HTTPException, OSError, ValueError) as error:
        raise _refused(registry, manifest, error) from error
    return Pushed(manifest.id, f"{registry.place}:{_tag(manifest)}", manifest.layers[0].sha256, sent)


def _descriptor(file: Path, kind: str) -> dict[str, Any]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": file.stat().st_size,
            "annotations": {_TITLE: file.name}}  # fmt: skip


def _artifact(manifest: Manifest, described: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": described[0],
        "layers": described[1:],
        "annotations": {
            _TITLE: manifest.id,
            "org.opencontainers.image.version": manifest.version,
            "org.opencontainers.image.description": manifest.recipe.description,
        },
    }


def _tag(manifest: Manifest) -> str:
    return f"{manifest.bundle}-{manifest.version}-{manifest.architecture}".replace("+", "_")


def _refused(registry: Registry, manifest: Manifest, error: Exception) -> Problem:
    if isinstance(error, HTTPError):
        why, hint = f"it answered {error.code}", "Look at what it says in its log."
        if error.code in (401, 403):
            hint = "Name a file with credentials that may write there: --credentials FILE."
    else:
        reason = error.reason if isinstance(error, URLError) else error
        why, hint = f"{reason}", "Check its address, and that this machine may reach it; then push again."
    said = f"{registry.place} does not take {manifest.id}: {why}."
    return Problem("registry_refused", 502, said, hint)
