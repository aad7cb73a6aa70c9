"""Bytes of a mirror: a directory or a web server, which may send anything, for ever, or a byte an hour."""

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import httpx
from tuf.api.exceptions import DownloadError, DownloadHTTPError, DownloadLengthMismatchError, SlowRetrievalError
from tuf.ngclient import FetcherInterface

_CHUNK = 1 << 20
PATIENCE_SECONDS = 60.0  # for anything at all
SLOWEST_BYTES_PER_SECOND = 16 * 1024  # from there on

Told = Callable[[int, int], None]  # bytes that are here, bytes that may come


class Mirror(FetcherInterface):
    """Never more than was promised, never slower than anybody would wait, and never through a decompressor."""

    def __init__(
        self,
        http: httpx.Client,
        work: Path,
        told: Told = lambda here, most: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http, self._work, self._told, self._now = http, work, told, now

    @contextmanager
    def download_file(self, url: str, max_length: int) -> Iterator[IO[bytes]]:
        began, here = self._now(), 0
        with tempfile.TemporaryFile(dir=self._work) as file:  # a runtime is larger than many a /tmp
            for data in self.fetch(url):
                here += len(data)
                if here > max_length:
                    raise DownloadLengthMismatchError(f"{url} is larger than {max_length} bytes")
                if self._now() - began > PATIENCE_SECONDS + here / SLOWEST_BYTES_PER_SECOND:
                    raise SlowRetrievalError(f"{url} came at less than {SLOWEST_BYTES_PER_SECOND} bytes a second")
                file.write(data)
                self._told(here, max_length)
            file.seek(0)
            yield file

    def _fetch(self, url: str) -> Iterator[bytes]:
        address = urlsplit(url)
        return _of_file(Path(unquote(address.path))) if address.scheme == "file" else self._of_web(url)

    def _of_web(self, url: str) -> Iterator[bytes]:
        try:
            with self._http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
                if answer.status_code != 200:
                    raise DownloadHTTPError(f"{url} answered {answer.status_code}", answer.status_code)
                yield from answer.iter_raw()  # as it comes: who waits for a full piece waits for ever
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DownloadError(f"{url}: {error or type(error).__name__}") from error


def _of_file(path: Path) -> Iterator[bytes]:
    try:
        # A link could lead anywhere, and opening a pipe would wait for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DownloadHTTPError(f"{path} is not there", 404) from error
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DownloadError(f"{path} is not a plain file")
        try:
            while data := file.read(_CHUNK):
                yield data
        except OSError as error:
            raise DownloadError(f"{path}: {error.strerror}") from error
