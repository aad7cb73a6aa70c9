"""A machine made by hand: overlay, veth, `runc run` with the product's own kind of container, and sshd inside.

Nothing is verified, nothing survives a crash, nobody is asked whether they may. The image's ids are not shifted, no
disk is limited, one host key serves all: all of which makes it faster than it could be in earnest.
"""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from gpuaas.node.host.container.boot import Boot
from gpuaas.node.host.container.config import config

_FIRST_ADDRESS = IPv4Address("10.213.0.0")
_FIRST_UID = 1 << 30
PORT = 2222  # a low one takes a right that the machine does not have in a network namespace of the host's
_SSHD_CONFIG = f"""\
Port {PORT}
HostKey /etc/floor/host_key
AuthorizedKeysFile /etc/floor/keys
StrictModes no
UsePAM no
UseDNS no
PidFile none
"""


class Floor:
    """Any number of such machines, below one directory."""

    def __init__(self, directory: Path, image: Path, public_key: str, runtime: str = "runc") -> None:
        self._directory = directory
        self._image = image
        self._runtime = [runtime, "--root", str(directory / "runtime")]
        self._tag = f"gf{os.getpid()}"
        self._host_key = directory / "host_key"
        self._public_key = public_key
        directory.mkdir(mode=0o711)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._host_key))

    def start(self, number: int) -> tuple[str, int]:
        """Returns where its sshd listens, or is about to."""
        name, place, uid = f"{self._tag}x{number}", self._directory / str(number), _FIRST_UID + number * 65536
        ours, theirs = _FIRST_ADDRESS + number * 4 + 1, _FIRST_ADDRESS + number * 4 + 2
        self._mount(place, uid)
        _batch([
            f"netns add {name}",
            f"link add {name} type veth peer name eth0 netns {name}",
            f"addr add {ours}/30 dev {name}",
            f"link set {name} up",
        ])  # fmt: skip
        _batch(["link set lo up", f"addr add {theirs}/30 dev eth0", "link set eth0 up"], "-netns", name)
        (place / "config.json").write_text(json.dumps(_config(place / "rootfs", name, uid)))
        with open(place / "log", "w") as log:  # not a pipe: what runs on in the background would keep it open
            command = [*self._runtime, "run", "--detach", "--bundle", str(place), name]
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
        return str(theirs), PORT

    def stop(self, number: int) -> None:
        """Everything of it that there is."""
        name, place = f"{self._tag}x{number}", self._directory / str(number)
        for command in (
            [*self._runtime, "delete", "--force", name],
            ["ip", "link", "delete", name],
            ["ip", "netns", "delete", name],
            ["umount", "--lazy", str(place / "rootfs")],
        ):
            subprocess.run(command, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)

    def close(self) -> None:
        for hierarchy in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
            with suppress(OSError):
                (hierarchy / self._tag).rmdir()

    def _mount(self, place: Path, uid: int) -> None:
        own = place / "upper/etc/floor"
        for directory in (place / "rootfs", place / "work", own):
            directory.mkdir(parents=True)
        place.chmod(0o711)
        shutil.copy(self._host_key, own / "host_key")
        (own / "sshd_config").write_text(_SSHD_CONFIG)
        (own / "keys").write_text(self._public_key + "\n")
        for path in (place / "upper", own.parent, own, own / "host_key"):
            os.chown(path, uid, uid)
        layers = f"lowerdir={self._image},upperdir={place / 'upper'},workdir={place / 'work'}"
        _run("mount", "-t", "overlay", "-o", layers, "overlay", str(place / "rootfs"))


def _config(rootfs: Path, name: str, uid: int) -> dict[str, Any]:
    """The product's, without what the runtime is to make by itself here."""
    made = config(
        Boot(
            id="al-aaaaaaaaaaaaaaaa",
            hostname=name,
            rootfs=rootfs,
            uid_base=uid,
            user_namespace="/unused",
            network_namespace=f"/run/netns/{name}",
            cgroup=f"/{name.partition('x')[0]}/{name}",
            init=("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/floor/sshd_config"),
            shm_bytes=32 << 20,
        )
    )
    # A network namespace of the host's user namespace allows neither.
    made["mounts"] = [each for each in made["mounts"] if not each["destination"].startswith("/sys")]
    del made["linux"]["sysctl"]
    for namespace in made["linux"]["namespaces"]:
        if namespace["type"] == "user":
            del namespace["path"]
    made["linux"]["resources"] |= {
        "memory": {"limit": 64 << 20},
        "pids": {"limit": 32768},
        "cpu": {"quota": 100_000, "period": 100_000},
    }
    return made


def _batch(commands: list[str], *options: str) -> None:
    done = subprocess.run(["ip", *options, "-batch", "-"], input="\n".join(commands), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip: {done.stderr.strip()}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
