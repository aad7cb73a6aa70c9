"""One node for all of these tests, because making one takes seconds. Machines are each test's own."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.images.store import Images
from root.conftest import CACHE, alone, erase
from root.escape.tenants import Tenant
from root.linux import Node

Launch = Callable[..., Tenant]


@pytest.fixture(scope="session")
def shared_node(base_image: Images, _subreaper: None) -> Iterator[Node]:
    with alone():
        work = Path(tempfile.mkdtemp(prefix="gpuaas-root-"))
        work.chmod(0o711)
        node = Node(work, CACHE / "images")
        first = Tenant(node, work, 0).launch()  # some of a node is made when it is first needed
        first.release()
    yield node
    with alone():
        node.host.shut_down()
        erase(work)


@pytest.fixture
def tenant(shared_node: Node, clean_machine: None, tmp_path: Path) -> Iterator[Launch]:
    """Makes a tenant, launched unless told otherwise. Gone afterwards, whatever became of it."""
    made: list[Tenant] = []

    def make(people: int = 1, launch: bool = True, seat: int | None = None, **more: object) -> Tenant:
        one = Tenant(shared_node, tmp_path, len(made) if seat is None else seat, people, **more)
        made.append(one)
        return one.launch() if launch else one

    yield make
    for one in made:
        with suppress(HostError):
            one.release()
    shared_node.host.forget(shared_node.host.news())


@pytest.fixture
def own_tenant(node: Node, tmp_path: Path) -> Launch:
    """On a node of the test's own, whose agent may be replaced."""
    return lambda seat=0, **more: Tenant(node, tmp_path, seat, **more)
