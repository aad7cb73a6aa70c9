"""Fixtures of every test: real databases. One server per run, shared by xdist workers, started on first use."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import databases
from gpuaas.control.store.embedded import Embedded

# The process that leads the run says where its server is; workers inherit it.
_STATE = "GPUAAS_TEST_STATE"


def _leads(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if _leads(config):
        databases.remove_abandoned()
        os.environ[_STATE] = str(databases.new_directory())


def pytest_unconfigure(config: pytest.Config) -> None:
    if _leads(config) and (directory := os.environ.pop(_STATE, "")):
        databases.remove(Path(directory))


@pytest.fixture(scope="session")
def postgres() -> Embedded:
    """The server of this test run; `admin_url` makes databases on it."""
    running = Embedded(Path(os.environ[_STATE]), durable=False)
    running.start()
    return running


@pytest.fixture(scope="session")
def template_database(postgres: Embedded) -> str:
    """The name of a migrated, empty database to clone from."""
    from gpuaas.control.store.migrate import upgrade

    return databases.make_template(postgres, "template_gpuaas", upgrade)


@pytest.fixture
def database_url(postgres: Embedded, template_database: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield databases.clone(postgres.admin_url, template_database, name)
    databases.drop(postgres.admin_url, name)
