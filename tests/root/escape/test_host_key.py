"""T26: a machine's host key is the platform's: the same for its life, its own, and not for its tenant to change."""

import subprocess

from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Tenant

pytestmark = needs("runc", "catatonit", "ssh", "ssh-keyscan")

CHANGE = """
exec 2>&1
cd /run/gpuaas/access
ssh-keygen -q -t ed25519 -N '' -f /tmp/key
for file in host_key sshd_config keys/gpu; do
    cp -f /tmp/key $file && echo changed
    rm -f $file && echo changed
    mount --bind /tmp/key $file && echo changed
    umount -l $file && echo changed
done
umount -l . && echo changed
cp /tmp/key /etc/ssh/ssh_host_ed25519_key
echo 'HostKey /tmp/key' >/etc/ssh/sshd_config
mkdir -p /home/gpu/.ssh; cp /tmp/key.pub /home/gpu/.ssh/authorized_keys
"""


def shown(tenant: Tenant) -> str:
    """What it shows to whoever connects."""
    words = ["ssh-keyscan", "-T", "10", "-p", str(tenant.body.ssh_port), "127.0.0.1"]
    lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    keys = {" ".join(line.split()[1:3]) for line in lines if not line.startswith("#")}
    assert len(keys) == 1, "keys of other kinds are shown too"
    return keys.pop()


def test_it_is_the_same_for_the_life_of_the_machine_and_its_own(own_tenant: Launch) -> None:
    machine, other = own_tenant(0).launch(), own_tenant(1).launch()
    before = shown(machine)
    assert before == machine.host_key
    assert shown(other) == other.host_key != before
    machine.restart()
    assert shown(machine) == machine.host_key == before
    machine.host.shut_down()  # as a reboot leaves it
    machine.new_agent()
    machine.launch()
    assert shown(machine) == machine.host_key == before
    other.release()
    again = own_tenant(1).launch()
    assert shown(again) not in (before, other.host_key)
    for each in (machine, again):
        each.release()


def test_it_is_not_the_tenants_to_read_or_change(tenant: Launch) -> None:
    machine = tenant()
    assert "Permission denied" in machine.ssh("cat /run/gpuaas/access/host_key").stderr
    kept = machine.ssh("ls -lan /run/gpuaas/access").stdout
    changed = machine.root(CHANGE)
    assert "changed" not in changed.stdout.split()
    assert machine.ssh("ls -lan /run/gpuaas/access").stdout == kept
    assert shown(machine) == machine.host_key
    machine.restart()
    assert shown(machine) == machine.host_key
