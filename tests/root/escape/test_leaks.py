"""T15: nothing in a machine tells of its host's paths and names, nor of the other machines there.

Twice: as a container alone, from inside and by entering it; and as the agent makes a machine, with GPUs, a runtime and
all that the platform binds into it.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.node.host import limits
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.paths import Paths
from node.samples import OTHER_ID, body
from root.conftest import needs
from root.erofs import small
from root.escape.conftest import Launch
from root.machines import PREFIX, UID_BASE, Machine

pytestmark = needs("runc", "catatonit", "mkfs.ext4")
PROBE = Path(__file__).with_name("look.py").read_text()


@pytest.fixture
def neighbour(paths: Paths, base_image: Images, namespaces: Namespaces) -> Iterator[Machine]:
    """On a disk image: its loop device knows the path of the file, with the id."""
    made = Machine(
        OTHER_ID,
        body(FakeHost(), uid_base=UID_BASE + IDS_PER_RANGE),
        paths,
        base_image,
        namespaces,
        limits.LIMITS["image"],
    )
    yield made
    made.remove()


def canaries(paths: Paths) -> list[str]:
    words = [str(paths.state.parent), OTHER_ID, PREFIX]
    name = socket.gethostname()
    return [*words, name] if len(name) > 6 else words  # a short one is part of other words


@pytest.mark.parametrize("way", ["exec", "enter"])
def test_a_machine_learns_nothing_of_its_host(machine: Machine, neighbour: Machine, paths: Paths, way: str) -> None:
    neighbour.start()
    machine.start()
    done = getattr(machine, way)("/usr/bin/python3", "-", json.dumps(canaries(paths)), text=PROBE)
    assert done.code == 0, done.output
    seen = json.loads(done.output)
    assert seen["found"] == []
    assert seen["files"] > 1000
    assert machine.exec("/bin/uname", "-n").output == "machine\n"


@needs("ssh", "mkfs.erofs")
def test_a_machine_with_all_that_the_platform_gives_it_learns_nothing(own_tenant: Launch, tmp_path: Path) -> None:
    tool = small(tmp_path, "1.0")
    one, other = own_tenant(runtimes=[tool.spec("tool", "1.0")]).launch(), own_tenant(1).launch()
    tool.add(one.host)
    assert [each.state for each in one.host.runtimes_ensure(one.id, one.body)] == ["ready"]
    config = one.node.config
    of_the_node = [str(config.paths.state.parent), str(config.paths.images), config.prefix, config.hostname]
    words = [*canaries(config.paths), *of_the_node, other.id, other.body.project_id, *other.gpus, tool.digest]
    # Not as an argument: the shells on the way to it would have the words too.
    seen = json.loads(one.python(f"import sys\nsys.argv.append({json.dumps(words)!r})\n{PROBE}"))
    assert seen["found"] == []
    assert seen["files"] > 1000
    mounted = one.ssh("cat /proc/self/mountinfo").stdout
    for place in ("/dev/nvidia0", "/dev/gpuaas-sim/memory0", "/etc/hosts", "/run/gpuaas/access", "/tool/1.0"):
        assert f"{place} " in mounted  # they are there to be searched
    for each in (one, other):
        each.release()


def test_the_search_finds_what_is_there(machine: Machine, neighbour: Machine, paths: Paths) -> None:
    neighbour.start()
    machine.start({"linux": {"maskedPaths": []}})
    done = machine.exec("/usr/bin/python3", "-", json.dumps(canaries(paths)), text=PROBE)
    assert any(path.endswith("loop/backing_file") for path in json.loads(done.output)["found"])


def test_no_process_but_its_own_is_seen(machine: Machine) -> None:
    machine.start()
    numbers = machine.exec("/bin/sh", "-c", "cd /proc && echo [0-9]*").output.split()
    assert len(numbers) <= 3
    assert machine.exec("/bin/cat", "/proc/1/comm").output == "init\n"
