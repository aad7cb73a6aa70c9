"""Reads an image out of an archive: a tarball of a root file system, an OCI archive, or what `docker save` writes."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gpuaas.kit.errors import HostError
from gpuaas.node.host.images.tree import Tree
from gpuaas.node.host.images.unpack import MAX_BYTES, Budget, member_name, members, put_all, refused

_MAX_DOCUMENT = 4 * 1024 * 1024
_ZSTD = b"\x28\xb5\x2f\xfd"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What Python says of archives that are none.
_BROKEN = (
    *(tarfile.TarError, zlib.error, EOFError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
)


def unpack(archive: Path, tree: Tree, scratch: Path, budget: Budget | None = None) -> None:
    """`scratch` is a directory with room for what has to be decompressed on the way."""
    budget = budget or Budget()
    try:
        with archive.open("rb") as packed, _plain(packed, scratch) as file:
            layers = _layers(file)
            if layers is None:
                put_all(file, tree, budget)
            for name, digest in layers or []:
                with _layer(file, name, digest, scratch) as layer:
                    put_all(layer, tree, budget, layered=True)
    except _BROKEN as error:
        raise refused(str(archive), f"it is not an image archive: {error}") from error
    except OSError as error:
        raise HostError("unpack", str(archive), error.strerror or str(error)) from error


def _layers(file: IO[bytes]) -> list[tuple[str, str]] | None:
    """Names and digests of the layers, lowest first; None for a plain tarball of a file system."""
    documents: dict[str, bytes] = {}
    for member, archive in members(file):
        name = member_name(member.name)
        if name == "etc":
            return None
        small = member.isreg() and member.size <= _MAX_DOCUMENT
        if small and (name in ("index.json", "manifest.json") or name.startswith("blobs/")):
            documents[name] = _read(archive, member)
    if "index.json" in documents:
        manifest = _manifest(documents, json.loads(documents["index.json"]))
        return [(_blob_name(layer["digest"]), layer["digest"]) for layer in manifest["layers"]]
    if "manifest.json" in documents:
        return [(member_name(layer), "") for layer in json.loads(documents["manifest.json"])[0]["Layers"]]
    return None


def _manifest(documents: Mapping[str, bytes], index: Any) -> Any:
    """The manifest for this machine's architecture. An index may list indexes."""
    wanted = _ARCHITECTURES.get(platform.machine(), platform.machine())
    fitting = [each for each in index["manifests"] if each.get("platform", {}).get("architecture", wanted) == wanted]
    if not fitting:
        raise refused("the archive", f"it holds no image for {wanted}")
    digest = fitting[0]["digest"]
    data = documents[_blob_name(digest)]
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise refused(digest, "its digest is wrong")
    document = json.loads(data)
    return _manifest(documents, document) if "manifests" in document else document


def _blob_name(digest: str) -> str:
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or not value.isalnum():
        raise refused(digest, "not a digest that we can check")
    return f"blobs/sha256/{value}"


@contextmanager
def _layer(file: IO[bytes], name: str, digest: str, scratch: Path) -> Iterator[IO[bytes]]:
    """A layer as a file of its own, its digest checked."""
    for member, archive in members(file):
        if member_name(member.name) == name and member.isreg():
            with tempfile.TemporaryFile(dir=scratch) as copy:
                actual = _copy(archive.extractfile(member), copy)
                if digest and f"sha256:{actual}" != digest:
                    raise refused(name, "its digest is wrong")
                with _plain(copy, scratch) as plain:
                    yield plain
            return
    raise refused(name, "the archive has no such layer")


@contextmanager
def _plain(file: IO[bytes], scratch: Path) -> Iterator[IO[bytes]]:
    """Python's tarfile knows gzip, bzip2 and xz; Zstandard comes from the program of that name."""
    file.seek(0)
    start = file.read(len(_ZSTD))
    file.seek(0)
    if start != _ZSTD:
        yield file
        return
    if shutil.which("zstd") is None:
        raise refused("the archive", "it is compressed with zstd, which is not installed")
    os.lseek(file.fileno(), 0, os.SEEK_SET)  # what the program reads from; Python keeps a position of its own
    with tempfile.TemporaryFile(dir=scratch) as plain:
        command = ["zstd", "-dcq"]
        with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                _copy(process.stdout, plain)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise refused("the archive", "it is damaged: zstd cannot read it")
        yield plain


def _copy(source: IO[bytes] | None, target: IO[bytes]) -> str:
    """Answers the digest."""
    assert source is not None
    digest = hashlib.sha256()
    size = 0
    while chunk := source.read(1024 * 1024):
        size += len(chunk)
        if size > MAX_BYTES:
            raise refused("the archive", "it unpacks to more than an image may hold")
        digest.update(chunk)
        target.write(chunk)
    target.flush()
    return digest.hexdigest()


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()
