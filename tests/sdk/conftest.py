from collections.abc import Iterator

import pytest

from gpuaas import Client
from gpuaas.sdk.retry import Retry
from sdk.playback import Playback, playback


@pytest.fixture
def server() -> Iterator[Playback]:
    with playback() as played:
        yield played


@pytest.fixture
def slept() -> list[float]:
    """How long the client wanted to wait, each time."""
    return []


@pytest.fixture
def client(server: Playback, slept: list[float]) -> Iterator[Client]:
    """Patient in its own time: sleeping only moves its clock."""

    def clock() -> float:
        return sum(slept)

    with Client(server.url, "gpt_mine", retry=Retry(sleep=slept.append, clock=clock, chance=lambda: 1.0)) as made:
        yield made
