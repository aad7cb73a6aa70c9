"""Archives: the recipe has the digest already."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.recipe import Source


def lock(source: Source) -> list[Artifact]:
    (url,) = source.items
    file = PurePosixPath(urlsplit(url).path).name
    digest = f"sha256:{source.sha256}"
    return [Artifact("archive", file, source.sha256[:12], file, digest, url, into=source.into, strip=source.strip)]
