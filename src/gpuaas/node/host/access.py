"""Who gets into a machine: its host key, the authorized keys, and how its sshd is told of them.

    <state>/host-keys/<id>             the private host key, for the life of the allocation
    <run>/allocations/<id>/access/     mounted read-only inside: sshd_config, host_key, keys/gpu
    <run>/allocations/<id>/keys.json   whose key is whose, for the supervisor

The directory is what is mounted, not the file: a renamed file would never reach a mount of the file.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from gpuaas.kit.errors import HostError
from gpuaas.node.host import safepath
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.images.finish import LOGIN
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.supervisor import requests
from gpuaas.node.host.supervisor.sessions import KEYS
from gpuaas.wire.node import KeySpec

INSIDE = "/run/gpuaas/access"
CONFIG = f"{INSIDE}/sshd_config"
# No PAM: its modules would be loaded from the tenant's tree. StrictModes would ask for owners that a read-only mount
# of ours makes unimportant. internal-sftp: no program of the tenant stands between scp and its files.
_CONFIG = f"""\
HostKey {INSIDE}/host_key
AuthorizedKeysFile {INSIDE}/keys/%u
AllowUsers {LOGIN}
AuthenticationMethods publickey
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
LogLevel VERBOSE
LoginGraceTime 30
MaxAuthTries 20
MaxSessions 64
ClientAliveInterval 30
ClientAliveCountMax 4
TCPKeepAlive yes
AllowTcpForwarding yes
AllowAgentForwarding yes
AllowStreamLocalForwarding yes
X11Forwarding no
PermitTunnel no
PermitUserEnvironment no
PermitUserRC no
PrintMotd no
PrintLastLog no
PidFile none
AcceptEnv LANG LC_* COLORTERM
Subsystem sftp internal-sftp
"""


class Access:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._host_keys = FileDisk(paths.state / "host-keys")

    def ensure(self, id: str, uid_base: int, keys: Sequence[KeySpec], environment: Mapping[str, str]) -> str:
        """Exactly these keys get in from now on, and whoever is in with another one is out. The public host key."""
        host_key = self._host_key(id)
        live = self._paths.make_live(id)
        directory = live / "access"
        with asking("write", f"the keys of {id}"):
            for each in (directory, directory / "keys"):
                each.mkdir(mode=0o755, exist_ok=True)
                each.chmod(0o755)
            _replace(directory / "host_key", _private(host_key), 0o600, uid_base)
            _replace(directory / "sshd_config", (_CONFIG + _set_env(environment)).encode(), 0o644)
            lines = "".join(f"{key.line}\n" for key in keys)
            _replace(directory / "keys" / LOGIN, lines.encode(), 0o644)
            # Last: a supervisor that reads the new list knows that sshd does too.
            whose = {key.fingerprint: key.user_id for key in keys}
            _replace(live / KEYS, msgspec.json.encode(whose), 0o600)
        requests.ask(live, requests.Keys())
        return _public(host_key)

    def remove(self, id: str) -> None:
        self.close(id)
        self._host_keys.remove(id)

    def close(self, id: str) -> None:
        """Whoever is still in is put out: an empty list first, then no list. The host key stays."""
        live = self._paths.live(id)
        if live.is_dir():
            with asking("remove", f"the keys of {id}"):
                _replace(live / KEYS, b"{}", 0o600)
            requests.ask(live, requests.Keys())
            safepath.remove_tree(live, "access")
            with suppress(FileNotFoundError):
                (live / KEYS).unlink()

    def ids(self) -> set[str]:
        return set(self._host_keys.names())

    def ready(self, id: str) -> bool:
        return (self._paths.live(id) / KEYS).exists() and self._host_keys.read(id) is not None

    def _host_key(self, id: str) -> Ed25519PrivateKey:
        data = self._host_keys.read(id)
        if data is None:
            key = Ed25519PrivateKey.generate()
            self._host_keys.write(id, _private(key))
            return key
        try:
            loaded = load_ssh_private_key(data, None)
        except ValueError as error:
            raise HostError("read", f"the host key of {id}", f"it is damaged: {error}", transient=False) from error
        if not isinstance(loaded, Ed25519PrivateKey):
            raise HostError("read", f"the host key of {id}", "it is of another kind than ours", transient=False)
        return loaded


def _set_env(environment: Mapping[str, str]) -> str:
    """One line: of several, sshd takes the first alone."""
    for name, value in environment.items():
        if any(char in '"\\' or not 32 <= ord(char) < 127 for char in name + value):
            cause = "it has characters that sshd's configuration cannot hold"
            raise HostError("set", ascii(name), cause, transient=False)
    quoted = " ".join(f'"{name}={value}"' for name, value in environment.items())
    return f"SetEnv {quoted}\n" if quoted else ""


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _replace(path: Path, data: bytes, mode: int, owner: int = 0) -> None:
    """Not on the disk: what is below the run directory need not survive a reboot."""
    aside = path.with_name(f".{path.name}")
    with suppress(FileNotFoundError):
        aside.unlink()
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)
        if owner:
            os.fchown(fd, owner, owner)
        os.write(fd, data)
    finally:
        os.close(fd)
    os.rename(aside, path)
