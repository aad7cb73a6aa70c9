"""T12: what a tenant leaves on the host's disk, a setuid program for one, is out of reach for everybody but root."""

import os
import stat
import subprocess

from root.conftest import needs
from root.escape.conftest import Launch

pytestmark = needs("runc", "catatonit", "ssh", "setpriv")


def test_nobody_on_the_host_reaches_it(tenant: Launch) -> None:
    machine = tenant()
    made = machine.root("cp /bin/bash /setuid; chmod 6755 /setuid")
    assert made.returncode == 0, made.stderr
    assert machine.root("mknod /node b 8 0 || mknod /dev/node c 1 1").returncode != 0
    paths = machine.node.config.paths
    for path in (paths.state, paths.layers, paths.layer(machine.id), paths.state / "host-keys", paths.state / "gpus"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path == paths.state, path
    pids = [os.getpid(), machine.host._machines.record(machine.id).first.pid]  # type: ignore[union-attr]
    places = [f"/proc/{pid}/root{place}" for pid in pids for place in (paths.layer(machine.id), "/setuid")]
    script = "; ".join(f"ls {place} && echo reached" for place in [*map(str, paths.layers.iterdir()), *places])
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]
    assert "reached" not in subprocess.run(words, capture_output=True, text=True).stdout
    assert not (machine.live / "rootfs").joinpath("setuid").exists()


def test_what_we_mount_takes_no_devices(tenant: Launch) -> None:
    machine = tenant()
    mounted = machine.host._namespaces.mounts(machine.id)
    ours = [each for each in mounted if each.target.startswith(str(machine.live))]
    assert {each.target for each in ours} >= {str(machine.live / "rootfs"), str(machine.live / "tools")}
    for each in ours:
        assert "nodev" in each.options, each
        # sudo has to work in the machine's own tree, and only there: nobody else gets into this namespace.
        assert "nosuid" in each.options or each.target == str(machine.live / "rootfs"), each
