"""T3: what is mounted into a running machine lands where it belongs, however fast its root renames the way there."""

import time
from pathlib import Path

from msgspec.structs import replace

from gpuaas.node.host.mounts import mounts
from root.conftest import needs
from root.erofs import small
from root.escape.conftest import Launch

pytestmark = needs("mkfs.erofs", "runc", "catatonit", "ssh")
SECONDS, FEWEST = 6.0, 50
# Everything above the place is a link, a directory of the tenant's, and the real one, in turns, without a gap between.
ATTACKER = """
import ctypes, os, time
libc = ctypes.CDLL(None)
EXCHANGE, HERE = 2, -100
os.symlink("/etc", "/trap")
os.makedirs("/twin/runtimes/tool")
os.makedirs("/links")
os.symlink("/proc/1/root/tmp", "/links/runtimes")
print("there", flush=True)
deadline, swaps = time.monotonic() + 120, 0
pairs = [(b"/opt", b"/trap"), (b"/opt/gpuaas", b"/twin"), (b"/opt/gpuaas", b"/links")]
while time.monotonic() < deadline and not os.path.exists("/tmp/enough"):
    for one, other in pairs:
        if libc.renameat2(HERE, one, HERE, other, EXCHANGE) == 0:
            swaps += 1
            libc.renameat2(HERE, one, HERE, other, EXCHANGE)
print(swaps)
"""


def test_renames_send_no_mount_elsewhere(own_tenant: Launch, work: Path) -> None:
    machine = own_tenant(0).launch()
    images = [small(work, version) for version in ("1.0", "2.0")]
    for image in images:
        image.add(machine.host)
    specs = [image.spec("tool", version) for image, version in zip(images, ("1.0", "2.0"), strict=True)]
    assert machine.ssh("cat >/tmp/attack.py", text=ATTACKER).returncode == 0
    attack = machine.session("exec sudo python3 /tmp/attack.py")
    assert attack.stdout is not None
    assert attack.stdout.readline() == "there\n"
    first = machine.host._machines.record(machine.id).first.pid  # type: ignore[union-attr]
    inside = Path(f"/proc/{first}/mountinfo")
    changes, host = 0, mounts.mounts()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for wanted in ([specs[0]], [specs[1]], [replace(specs[0], current=False), specs[1]], []):
            told = machine.host.runtimes_ensure(machine.id, replace(machine.body, runtimes=wanted))
            assert [each.state for each in told] == ["ready"] * len(wanted)
            changes += 1
            # By the kernel's word: the images, and nowhere but below the machine's view.
            places = [line.split()[4] for line in inside.read_text().splitlines() if " erofs " in line]
            assert len(places) == len(wanted)
            assert all(each.endswith(("/runtimes/tool/1.0", "/runtimes/tool/2.0")) for each in places), places
    (Path(f"/proc/{first}/root/tmp") / "enough").touch()
    swaps = int(attack.communicate(timeout=30)[0])
    assert changes > FEWEST
    assert swaps > FEWEST, "nobody raced"
    store = str(machine.node.config.paths.run / "images")
    more = {each.target for each in mounts.mounts()} - {each.target for each in host}
    assert all(each.startswith(store) for each in more), more
    machine.host.runtimes_remove(machine.id)
    assert not [line for line in inside.read_text().splitlines() if " erofs " in line]
    machine.release()
