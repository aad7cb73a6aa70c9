"""What tests of the control plane share."""

from collections.abc import Iterator

import pytest

from control.cluster import Cluster


@pytest.fixture
def cluster(database_url: str) -> Iterator[Cluster]:
    made = Cluster(database_url)
    yield made
    made.store.engine.dispose()
