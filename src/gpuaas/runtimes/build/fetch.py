"""Downloads what a lock names: each file once, bounded, and only under its digest after its bytes have it.

What is here already is read before it is used: a disk forgets, and one wrong file would be in every later build.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.lock import web
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.shelf import Shelf, settle

_AT_ONCE = 4
_LARGEST = 16 * 10**9
_CHUNK = 1 << 20


def fetch(artifacts: Iterable[Artifact], shelf: Shelf, say: Callable[[str, int | None], None]) -> None:
    wanted = {each.digest: each for each in artifacts}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        states = pool.map(lambda digest: _is_whole(shelf.artifact(digest), digest), wanted)
        whole = dict(zip(wanted, states, strict=True))
    missing = {digest: each for digest, each in wanted.items() if not whole[digest]}
    for digest, artifact in missing.items():
        if whole[digest] is False:
            say(f"{artifact.file} is damaged here, and is fetched again", None)
    done = 0
    counting = threading.Lock()
    with web.client() as http:

        def one(artifact: Artifact) -> None:
            nonlocal done
            _fetch(artifact, shelf, http)
            with counting:
                done += 1
                say(f"{artifact.name} {artifact.version}", done * 100 // len(missing))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            waiting = [pool.submit(one, artifact) for artifact in missing.values()]
            try:
                for each in waiting:
                    each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    say(f"{len(missing)} files" if missing else "everything is here", 100)


def _is_whole(file: Path, wanted: str) -> bool | None:
    """None: it is not here."""
    algorithm, _, digest = wanted.partition(":")
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, algorithm).hexdigest() == digest
    except FileNotFoundError:
        return None
    except OSError:  # a disk that cannot read it; another copy may lie elsewhere on it
        return False


def _fetch(artifact: Artifact, shelf: Shelf, http: httpx.Client) -> None:
    final = shelf.artifact(artifact.digest)
    made = final.with_name(f".{final.name}-{os.getpid()}-{threading.get_ident()}")
    algorithm, _, wanted = artifact.digest.partition(":")
    digest = hashlib.new(algorithm)
    try:
        with made.open("wb") as out:
            for data in _bytes(artifact, http):
                digest.update(data)
                out.write(data)
                if out.tell() > (artifact.size or _LARGEST):
                    raise _wrong(artifact, f"it is larger than {artifact.size or _LARGEST} bytes")
        if digest.hexdigest() != wanted:
            raise _wrong(artifact, f"its {algorithm} is {digest.hexdigest()}, not {wanted}")
        settle(made, final)
    except OSError as error:
        raise Problem(
            "build_failed", 500, f"{error.filename or made}: {error.strerror}.", "Is the disk full?"
        ) from error
    finally:
        made.unlink(missing_ok=True)


def _bytes(artifact: Artifact, http: httpx.Client) -> Iterable[bytes]:
    address = urlsplit(artifact.url)
    if address.scheme in ("", "file"):
        with Path(unquote(address.path)).open("rb") as file:
            while data := file.read(_CHUNK):
                yield data
        return
    try:
        with http.stream("GET", artifact.url) as answer:
            if answer.status_code != 200:
                said = f"{address.netloc} answered {answer.status_code} for {artifact.file}."
                hint = "It may have been replaced by a newer one: build with --relock."
                raise Problem("not_in_registry", 502, said, hint)
            yield from answer.iter_raw(_CHUNK)
    except httpx.HTTPError as error:
        raise web.unreachable(artifact.url, error) from error


def _wrong(artifact: Artifact, why: str) -> Problem:
    said = f"{artifact.file} is not what the lock names: {why}."
    return Problem(
        "wrong_digest", 502, said, "Nothing of it was used. Ask who runs the mirror, or build with --relock."
    )
