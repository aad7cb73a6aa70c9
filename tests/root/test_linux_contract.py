"""The Linux host does what every host must do, on the real kernel. The tests are those of the fake one."""

from collections.abc import Callable, Iterator

import pytest

from gpuaas.node.host.gpus.source import SimulatedGpus
from gpuaas.node.host.linux import LinuxHost
from node.test_host_contract import *  # noqa: F403
from root.linux import Node


@pytest.fixture
def host(node: Node) -> Iterator[LinuxHost]:
    yield node.host
    node.host.shut_down()


@pytest.fixture
def scrubs_fail(host: LinuxHost) -> Callable[[bool], None]:
    assert isinstance(host.gpus, SimulatedGpus)
    troubles = host.gpus.simulated.root / "scrub"

    def change(fail: bool) -> None:
        for gpu in host.gpus.found().gpus:
            if fail:
                (troubles / str(gpu.index)).write_text("the scrubber is on holiday")
            else:
                (troubles / str(gpu.index)).unlink(missing_ok=True)

    return change
