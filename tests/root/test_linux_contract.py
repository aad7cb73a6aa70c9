"""The Linux host does what every host must do, on the real kernel. The tests are those of the fake one."""

from collections.abc import Iterator

import pytest

from gpuaas.node.host.linux import LinuxHost
from node.test_host_contract import *  # noqa: F403
from root.linux import Node


@pytest.fixture
def host(node: Node) -> Iterator[LinuxHost]:
    yield node.host
    node.host.shut_down()
