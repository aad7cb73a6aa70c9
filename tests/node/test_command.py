"""Programs that the host runs, on a node that has many descriptors open."""

import os
import resource
from collections.abc import Iterator

import pytest

from gpuaas.node.host import command

MANY = 1100  # select() takes 1,024


@pytest.fixture
def many_open() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY:
        pytest.skip(f"at most {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MANY), hard))
    opened = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(MANY)]
    yield
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_with_many_machines_runs_programs(many_open: None) -> None:
    done = command.run(["sh", "-c", "echo one; echo two >&2; exit 3"], 10.0)
    assert (done.code, done.output.split()) == (3, ["one", "two"])


def test_what_a_program_leaves_behind_keeps_nobody_waiting() -> None:
    done = command.run(["sh", "-c", "sleep 30 & echo $!"], 10.0)
    os.kill(int(done.output), 9)
    assert done.seconds < 10.0
