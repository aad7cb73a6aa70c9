"""T16: what a tenant has put into a GPU is gone before the next one gets it, or nobody does."""

import os
import signal

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus import scrub
from root.conftest import needs
from root.escape.conftest import Launch

pytestmark = needs("runc", "catatonit", "ssh")
MEMORY = "/dev/gpuaas-sim/memory0"
SECRET = "the weights of a tenant"


def test_the_next_tenant_reads_zeros(tenant: Launch) -> None:
    first = tenant(seat=0)
    written = first.root(f"yes '{SECRET}' | head -c 1048576 >{MEMORY}; grep -c weights {MEMORY}")
    assert int(written.stdout) > 1000, written.stderr
    scrubs = first.release()
    assert [(each.gpu, each.clean) for each in scrubs] == [(first.gpus[0], True)]
    assert "read back as zero" in scrubs[0].evidence
    second = tenant(seat=0)
    assert second.gpus == first.gpus
    assert second.root(f"tr -d '\\0' <{MEMORY} | wc -c; wc -c <{MEMORY}").stdout.split() == ["0", "1048576"]


def test_a_gpu_that_was_not_scrubbed_is_nobodys(own_tenant: Launch) -> None:
    first = own_tenant(seat=1).launch()
    first.root(f"yes '{SECRET}' | head -c 1048576 >{MEMORY}")
    trouble = first.node.config.paths.state / "simulated-gpus/scrub/1"
    trouble.write_text("XID 79 in the middle of it")
    try:
        assert [(each.clean, each.evidence) for each in first.release()] == [(False, "XID 79 in the middle of it")]
        second = own_tenant(seat=1)
        with pytest.raises(HostError, match="was not scrubbed"):
            second.launch()
        first.new_agent()  # an agent that starts anew does not know less
        with pytest.raises(HostError, match="was not scrubbed"):
            second.launch()
        assert [each.clean for each in second.release()] == [False]
    finally:
        trouble.unlink()
    assert [each.clean for each in first.host.devices_remove(first.id, first.gpus)] == [True]
    third = own_tenant(seat=1).launch()
    assert third.root(f"tr -d '\\0' <{MEMORY} | wc -c").stdout == "0\n"
    third.release()


def test_an_agent_that_is_killed_in_a_scrub_leaves_a_gpu_that_is_nobodys(own_tenant: Launch) -> None:
    first = own_tenant(seat=1).launch()
    first.root(f"yes '{SECRET}' | head -c 1048576 >{MEMORY}")
    first.stop()
    first.host.access_remove(first.id)
    first.host.network_remove(first.id)
    agent = os.fork()
    if agent == 0:
        try:
            written = scrub._write_all

            def half(fd: int, data: memoryview, offset: int) -> None:
                written(fd, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)

            scrub._write_all = half
            first.host.devices_remove(first.id, first.gpus)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1]) == -signal.SIGKILL
    memory = (first.node.config.paths.state / "simulated-gpus/memory/1").read_bytes()
    assert memory.startswith(b"\0")
    assert SECRET.encode() in memory
    first.new_agent()
    second = own_tenant(seat=1)
    with pytest.raises(HostError, match=f"in use by {first.id}"):
        second.host.devices_ensure(second.id, second.body)
    assert [each.clean for each in first.host.devices_remove(first.id, first.gpus)] == [True]
    first.host.rootfs_remove(first.id)
    second.launch()
    assert second.root(f"tr -d '\\0' <{MEMORY} | wc -c").stdout == "0\n"
    second.release()
