"""The bill of materials as CycloneDX 1.5: every artifact of a runtime with its package URL and digest."""

import uuid
from typing import Any
from urllib.parse import quote

from gpuaas import __version__
from gpuaas.runtimes.lock.lockfile import Artifact, Lock, lock_digest
from gpuaas.runtimes.recipe import Recipe

_HASHES = {"sha256": "SHA-256", "sha512": "SHA-512"}


def bill(recipe: Recipe, lock: Lock) -> dict[str, Any]:
    """No time in it: the same lock gives the same bill."""
    digest = lock_digest(lock)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'urn:gpuaas:lock:{digest}')}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "gpuaas", "version": __version__}]},
            "component": {
                "type": "container",
                "bom-ref": recipe.id,
                "name": recipe.name,
                "version": recipe.version,
                "description": recipe.description,
            },
        },
        "components": [_component(artifact, lock.architecture) for artifact in lock.artifacts],
    }


def _component(artifact: Artifact, architecture: str) -> dict[str, Any]:
    algorithm, _, value = artifact.digest.partition(":")
    reference = package_url(artifact, architecture)
    return {
        "type": "library",
        "bom-ref": f"{reference}#{value[:12]}",
        "name": artifact.name,
        "version": artifact.version,
        "purl": reference,
        "hashes": [{"alg": _HASHES[algorithm], "content": value}],
    }


def package_url(artifact: Artifact, architecture: str) -> str:
    name, version = quote(artifact.name, safe="/"), quote(artifact.version, safe="")
    match artifact.kind:
        case "deb":
            return f"pkg:deb/debian/{name}@{version}?arch={architecture}"
        case "pypi" | "npm":
            return f"pkg:{artifact.kind}/{name.replace('@', '%40')}@{version}"
    return f"pkg:generic/{name}@{version}"
