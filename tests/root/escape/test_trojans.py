"""T7: nothing of a tenant's tree is run or loaded by the host, nor by the platform's own programs in the machine."""

import subprocess
from pathlib import Path

import pytest

from root.conftest import needs
from root.escape.conftest import Launch

pytestmark = needs("runc", "catatonit", "ssh", "gcc")
SOURCE = Path(__file__).with_name("trojan.c")
LIBRARIES = ("libnss_files.so.2", "libnss_compat.so.2", "libnss_trojan.so.2", "libnss_dns.so.2", "libwrap.so.0")
PROGRAMS = ("/usr/bin/dash", "/usr/sbin/ldconfig", "/usr/sbin/sshd", "/usr/bin/id", "/usr/sbin/runc", "/usr/bin/mount")
# The last line is the last: from then on the trojan is in every program here.
PLANT = """
touch /trojan.log; chmod 666 /trojan.log
for each in passwd group shadow hosts initgroups; do echo $each: trojan files; done >/etc/nsswitch.conf
echo 'sshd: ALL: spawn (echo spawned >>/trojan.log)' >/etc/hosts.allow
echo 'ForceCommand /bin/false' >/etc/ssh/sshd_config
echo 'echo rc >>/trojan.log' >/etc/ssh/sshrc
cat >/etc/ssl/openssl.cnf <<'EOF'
openssl_conf = init
[init]
providers = all
[all]
trojan = trojan_section
[trojan_section]
module = /usr/lib/trojan.so
activate = 1
EOF
echo /usr/lib/trojan.so >/etc/ld.so.preload
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def build(tmp_path: Path, canary: Path) -> tuple[Path, Path]:
    library, program = tmp_path / "trojan.so", tmp_path / "trojan"
    flags = ["gcc", "-O1", "-w", f'-DCANARY="{canary}"', str(SOURCE)]
    subprocess.run([*flags, "-shared", "-fPIC", "-o", library], check=True)
    subprocess.run([*flags, "-static", "-o", program], check=True)
    return library, program


def test_trojans(tenant: Launch, canary: Path, build: tuple[Path, Path]) -> None:
    machine = tenant(people=2)
    machine.stop()
    library, program = build
    machine.install(library, "/usr/lib/trojan.so", *(f"/usr/lib/x86_64-linux-gnu/{name}" for name in LIBRARIES))
    machine.install(program, *PROGRAMS)
    machine.plant(PLANT)
    machine.launch()
    assert machine.ssh("echo fine").stdout == "fine\n"
    machine.admit(machine.people[1])
    assert machine.ssh("true").returncode == 255
    assert machine.ssh("echo fine", by=machine.people[1]).stdout == "fine\n"
    machine.host.sample(machine.id)
    machine.restart()
    log = machine.ssh("cat /trojan.log; sh -c 'echo $0'", by=machine.people[0]).stdout.splitlines()
    machine.release()
    assert not canary.exists(), canary.read_text()
    assert "bash" in log, "the trojan itself does not work"
    assert "the platform's sshd" not in log
    assert "spawned" not in log
