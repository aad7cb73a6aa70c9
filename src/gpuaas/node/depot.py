"""The registry that images are asked for first. It has bytes and no say: the server has whatever it does not give."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from urllib.error import HTTPError

from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import Problem
from gpuaas.kit.registry import Registry
from gpuaas.kit.visible import visible

log = logging.getLogger(__name__)

REST_SECONDS = 60.0  # without a question, for one that does not answer: each would have to wait for it


class Depot:
    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._rests_until = 0.0
        self._why = ""
        self._gave: set[str] = set()  # images of which a part came from it
        self._wrong: set[str] = set()  # images that were others then

    def why_not(self, digest: str) -> str:
        """Why it is not asked for this one. Empty: it is."""
        if digest in self._wrong:
            return self._said("sent another image")
        return self._why if self._clock.boottime() < self._rests_until else ""

    @contextmanager
    def opened(self, digest: str, offset: int) -> Iterator[HTTPResponse]:
        with self._registry.blob(f"sha256:{digest}", offset) as answer:
            self._gave.add(digest)
            self._rests_until = 0.0
            yield answer

    def failed(self, digest: str, error: Exception, came: bool) -> str:
        """Why somebody else is asked. `came`: for the rest; it can be asked again."""
        if isinstance(error, HTTPError) and error.code == 404:
            return self._said("does not have its image")
        log.warning("%s does not send image %s: %s", self._registry.place, digest, visible(error))
        if isinstance(error, Problem):
            why = self._said(f"cannot be asked ({error.message.rstrip('.')})")
        elif isinstance(error, HTTPError):
            why = self._said(f"does not give its image away (it answered {error.code})")
        else:
            why = self._said("does not send its image" if came else "does not answer")
        if not came:
            self._why, self._rests_until = why, self._clock.boottime() + REST_SECONDS
        return why

    def was_wrong(self, digest: str) -> bool:
        """Another image has come. If it had a part in that, it is not asked for this one again."""
        if digest not in self._gave:
            return False
        log.warning("with what %s sent, image %s is another one", self._registry.place, digest)
        self._gave.discard(digest)
        self._wrong.add(digest)
        return True

    def forget_but(self, digests: Collection[str]) -> None:
        self._gave.intersection_update(digests)
        self._wrong.intersection_update(digests)

    def _said(self, what: str) -> str:
        return f"The registry {self._registry.place} {what}; the server is asked."
