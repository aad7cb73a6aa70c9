"""Tenants with a machine, and people with keys of their own who log in to it by real ssh, as attackers do."""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from msgspec.structs import replace

from gpuaas.kit.ids import Ids
from gpuaas.model import ssh_key
from gpuaas.node.host.images.finish import LOGIN
from gpuaas.node.host.linux import LinuxHost
from gpuaas.wire.node import AllocationBody, KeySpec, Scrub, SlotSpec
from root.linux import Node

ids = Ids(random.Random())
FIRST_UID, FIRST_PORT = 65536 * 7300, 21500  # of others than the rest of the tests use
SSH = ("ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR")
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Person:
    file: Path  # of the private key
    key: KeySpec


def person(directory: Path) -> Person:
    private = Ed25519PrivateKey.generate()
    user_id = ids.new("us")
    file = directory / user_id
    file.touch(mode=0o600)
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    line = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return Person(file, KeySpec(user_id, line, ssh_key.parse(line).fingerprint))


class Tenant:
    """One allocation. The first of its people is who logs in unless another is named."""

    def __init__(self, node: Node, directory: Path, seat: int, people: int = 1, **more: object) -> None:
        self.node = node
        self.id = ids.new("al")
        self.people = [person(directory) for _ in range(people)]
        self.host_key = ""
        self._known = directory / f"{self.id}.known"
        gpu = self.host.inventory().gpus[seat].uuid
        made = AllocationBody(
            name=f"machine-{seat}",
            org_id=ids.new("or"),
            project_id=ids.new("pr"),
            slots=[SlotSpec(ids.new("sl"), [gpu])],
            cpus=8,
            memory_mib=512,
            seat=seat,
            ssh_port=FIRST_PORT + seat,
            uid_base=FIRST_UID + 65536 * seat,
            keys=[each.key for each in self.people],
        )
        self.body = replace(made, **more)

    @property
    def host(self) -> LinuxHost:
        return self.node.host

    @property
    def live(self) -> Path:
        return self.node.config.paths.live(self.id)

    @property
    def gpus(self) -> list[str]:
        return [gpu for slot in self.body.slots for gpu in slot.gpus]

    # what the agent does

    def launch(self) -> "Tenant":
        self.prepare()
        self.host.container_start(self.id, self.body)
        return self

    def prepare(self) -> None:
        """Everything but the start."""
        self.host.rootfs_ensure(self.id, self.body)
        self.host.devices_ensure(self.id, self.body)
        self.host.network_ensure(self.id, self.body)
        self.admit(*self.people)

    def admit(self, *people: Person) -> None:
        """These, and nobody else."""
        self.host_key = self.host.access_ensure(self.id, [each.key for each in people])
        self._known.write_text(f"[127.0.0.1]:{self.body.ssh_port} {self.host_key}\n")

    def stop(self) -> None:
        self.host.container_stop(self.id)

    def restart(self) -> None:
        self.stop()
        self.body = replace(self.body, restarts=self.body.restarts + 1)
        self.launch()

    def new_agent(self) -> None:
        self.host.close()
        self.node.agent()

    def release(self) -> list[Scrub]:
        self.stop()
        self.host.access_remove(self.id)
        self.host.network_remove(self.id)
        scrubs = self.host.devices_remove(self.id, self.gpus)
        self.host.rootfs_remove(self.id)
        return scrubs

    def plant(self, script: str, text: bytes = b"", *, with_rights: bool = False) -> None:
        """As the machine's root, on its tree while it does not run: nothing is in use then.

        Locked into it and without any right on the host: the links in that tree lead to the host's own files. With
        rights it plants what no tenant can, such as devices: as a hole of the kernel's, or an imported tree, could.
        """
        pin, root = self.node.config.paths.pin(self.id), 0 if with_rights else self.body.uid_base
        locked = ["chroot", f"--userspec=+{root}:+{root}", "--groups=", f"{self.live}/rootfs"]
        words = ["nsenter", f"--mount={pin}", *locked, "/bin/bash", "-euc", script]
        subprocess.run(words, input=text, check=True, timeout=60)

    def install(self, source: Path, *targets: str) -> None:
        """A file of the test's, as programs of the machine's that does not run."""
        script = 'cat >/planted; for each in "$@"; do rm -f "$each"; cp /planted "$each"; chmod 755 "$each"; done'
        self.plant(f"set -- {' '.join(targets)}; {script}; rm /planted", source.read_bytes())

    # what people do

    def command(self, *words: str, by: Person | None = None) -> list[str]:
        """Options of ssh first, then the destination, then the command."""
        who = by or self.people[0]
        options = ["-i", str(who.file), "-p", str(self.body.ssh_port), "-o", f"UserKnownHostsFile={self._known}"]
        return [*SSH, *options, *words]

    def ssh(self, command: str, by: Person | None = None, text: str = "", seconds: float = 60) -> Done:
        words = self.command(f"{LOGIN}@127.0.0.1", command, by=by)
        return subprocess.run(words, input=text, capture_output=True, text=True, errors="replace", timeout=seconds)

    def root(self, script: str, by: Person | None = None, seconds: float = 60) -> Done:
        """As root inside."""
        return self.ssh("sudo bash -s", by, script, seconds)

    def python(self, script: str, *arguments: str, root: bool = True, seconds: float = 60) -> str:
        sudo = "sudo " if root else ""
        done = self.ssh(f"{sudo}python3 - {' '.join(arguments)}", text=script, seconds=seconds)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def session(self, command: str, *options: str, by: Person | None = None) -> subprocess.Popen[str]:
        """One that goes on. Its first line of output says that it has begun."""
        words = self.command(*options, f"{LOGIN}@127.0.0.1", command, by=by)
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
