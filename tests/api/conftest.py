"""One populated server per module; tests that need a database of their own take `database_url`."""

import uuid
from collections.abc import Iterator

import httpx
import pytest

import databases
from api.server import Replica, serve
from api.world import World
from gpuaas.control.store.embedded import Embedded


@pytest.fixture(scope="module")
def module_database_url(postgres: Embedded, template_database: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield databases.clone(postgres.admin_url, template_database, name)
    databases.drop(postgres.admin_url, name)


@pytest.fixture(scope="module")
def replica(module_database_url: str) -> Iterator[Replica]:
    with serve(module_database_url) as running:
        yield running


@pytest.fixture(scope="module")
def world(replica: Replica, module_database_url: str) -> World:
    return World(replica.store, module_database_url)


@pytest.fixture(scope="module")
def http(replica: Replica) -> Iterator[httpx.Client]:
    """Says nothing about who is asking."""
    with httpx.Client(base_url=replica.url, timeout=30) as client:
        yield client
