"""Where on the server's disk an image lies: the platform's in one directory, those of each project in one of its own.

Nothing is shared between projects, not even equal bytes: whoever names a digest cannot get at what others have sent,
nor spoil what is on its way for them.

<sha256>.erofs                         of the platform (store/images.py)
projects/<project>/<sha256>.erofs      of a project
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuaas.control.store.images import SPARE_BYTES, Images
from gpuaas.kit.errors import Problem
from gpuaas.model.runtime import RuntimeBundle

_PROJECTS = "projects"


def of_project(images: Images, project_id: str) -> Images:
    return Images(images.directory / _PROJECTS / project_id)


def of_bundle(images: Images, bundle: RuntimeBundle) -> Images:
    """Operators published for projects once: what they sent lies among the platform's."""
    if bundle.project_id is None or (bundle.state != "draft" and images.complete(bundle.digest)):
        return images
    return of_project(images, bundle.project_id)


def lost(images: Images, bundle: RuntimeBundle) -> bool:
    return of_bundle(images, bundle).lost(bundle.digest)


def everywhere(images: Images) -> list[tuple[str | None, Images]]:
    """Every directory of images, and whose it is."""
    projects = images.directory / _PROJECTS
    names = sorted(each.name for each in projects.iterdir() if each.is_dir()) if projects.is_dir() else []
    return [(None, images), *((name, of_project(images, name)) for name in names)]


def bring_back_all(images: Images) -> None:
    for _, each in everywhere(images):
        each.bring_back_all()


@contextmanager
def room(images: Images, needed_bytes: int) -> Iterator[Path]:
    """A directory to unpack an image in, gone afterwards."""
    if shutil.disk_usage(images.directory).free < needed_bytes + SPARE_BYTES:
        said = "The server has no room to look into this image."
        raise Problem("disk_full", 503, said, "Tell an operator.", extra={"retry_after": 60})
    with tempfile.TemporaryDirectory(prefix=".look-", dir=images.directory, ignore_cleanup_errors=True) as made:
        yield Path(made)
