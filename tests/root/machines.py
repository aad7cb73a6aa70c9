"""A machine to look at from inside: started by runc from our config, entered by runc or the way a session enters it."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuaas.node.host import kernel, limits
from gpuaas.node.host.cgroups import layout as cgroup_layout
from gpuaas.node.host.cgroups.cgroup import Cgroup, cgroup, present, remove_prefix
from gpuaas.node.host.cgroups.kill import kill
from gpuaas.node.host.container import apply, seccomp
from gpuaas.node.host.container.boot import Boot, ReadOnlyBind
from gpuaas.node.host.container.config import config
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.mounts import idmaps
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import AnyOperation
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.rootfs import Rootfs
from gpuaas.wire.node import AllocationBody

PREFIX = f"gpuaas-test-{os.getpid()}"
# Far from where agents begin to count: one may be at work on this machine.
UID_BASE = 65536 * (2000 + os.getpid() % 1000)
INIT = "/run/gpuaas/tools/init"
LOADED = 123
CLONE_NEWNET = 0x40000000
NAMESPACES = ("cgroup", "ipc", "uts", "net", "pid", "mnt", "user")


@dataclass
class Inside:
    code: int
    output: str


class Machine:
    """`start` may be given other parts of the boot, and a way to spoil the config."""

    def __init__(
        self,
        id: str,
        body: AllocationBody,
        paths: Paths,
        images: Images,
        namespaces: Namespaces,
        limit: limits.Limit = limits.LIMITS["none"],
    ) -> None:
        self.id = id
        self.layout = cgroup_layout.detect()
        self.pid = 0
        self._bundle = paths.state / "bundles" / id
        self._namespaces = namespaces
        self._rootfs = Rootfs(paths, images, namespaces, limit)
        self._rootfs.ensure(id, body)
        self._group: Cgroup = cgroup(self.layout, id, PREFIX)
        self._group.ensure()
        user = idmaps.user_namespace(body.uid_base)
        self._handles = [user, network_namespace(user)]
        held = [f"/proc/{os.getpid()}/fd/{handle}" for handle in self._handles]
        init = ReadOnlyBind("/usr/bin/catatonit", INIT)
        self.boot = Boot(
            id=id,
            hostname="machine",
            rootfs=self._rootfs.path(id),
            uid_base=body.uid_base,
            user_namespace=held[0],
            network_namespace=held[1],
            cgroup=f"/{self._group.path}",
            init=(INIT, "-P"),
            shm_bytes=64 << 20,
            binds=(init,),
        )

    def start(
        self,
        spoil: dict[str, Any] | None = None,
        stdout: Any = subprocess.DEVNULL,
        within: Sequence[str] = (),
        **other: Any,
    ) -> None:
        self.boot = dataclasses.replace(self.boot, **other)
        self._bundle.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = spoiled(config(self.boot), spoil or {})
        (self._bundle / "config.json").write_text(json.dumps(made))
        pid_file = self._bundle / "pid"
        run = ["run", "--detach", "--pid-file", str(pid_file), "--bundle", str(self._bundle), self.id]
        done = subprocess.run(
            self._namespaces.command(self.id, [*within, *self.runc(*run)]),
            stdin=subprocess.DEVNULL,
            stdout=stdout,  # the machine's first process inherits them
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
        assert done.returncode == 0, (self._bundle / "log").read_text()
        self.pid = int(pid_file.read_text())

    def runc(self, *command: str) -> list[str]:
        return ["runc", "--root", str(self._bundle / "runc"), "--log", str(self._bundle / "log"), *command]

    def exec(self, *command: str, user: int = 0, text: str = "") -> Inside:
        """By runc."""
        switch = ["exec", "--user", f"{user}:{user}", self.id, *command]
        done = subprocess.run(
            self._namespaces.command(self.id, self.runc(*switch)),
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=300,
        )
        return Inside(done.returncode, done.stdout)

    def popen(self, *command: str) -> subprocess.Popen[str]:
        """By runc, while others go on."""
        words = self._namespaces.command(self.id, self.runc("exec", self.id, *command))
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def enter(self, *command: str, text: str = "") -> Inside:
        """As a session does: into the namespaces, then `apply`, then the program."""
        read, write = os.pipe()
        stdin = os.memfd_create("stdin")
        os.write(stdin, text.encode())
        os.lseek(stdin, 0, os.SEEK_SET)
        program = seccomp.program()
        pid = os.fork()
        if pid == 0:
            _enter(self, command, program, stdin, write)
        os.close(write)
        os.close(stdin)
        with open(read, encoding="utf-8", errors="replace") as file:
            output = file.read()
        return Inside(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output)

    def join(self, pid: int) -> None:
        self._group.join(pid)

    def nsenter(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A program of the host's with all rights over the machine's network."""
        user, net = (f"/proc/self/fd/{handle}" for handle in self._handles)
        line = ["nsenter", f"--user={user}", f"--net={net}", "--", *command]
        return subprocess.run(line, pass_fds=self._handles, capture_output=True, text=True)

    def end(self) -> None:
        kill(self._group)
        subprocess.run(self._namespaces.command(self.id, self.runc("delete", "--force", self.id)), capture_output=True)
        if self.pid:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)  # its parent, runc, has ended, and orphans are ours
        self.pid = 0

    def change(self, *operations: AnyOperation) -> None:
        """In the machine's pinned mount namespace."""
        self._namespaces.change(self.id, operations)

    def remove(self) -> None:
        self.end()
        for id in present(self.layout, PREFIX):  # of a spoiled config, too
            other = cgroup(self.layout, id, PREFIX)
            if id.startswith(self.id):
                kill(other)
                other.remove()
        remove_prefix(self.layout, PREFIX)
        for handle in self._handles:
            os.close(handle)
        self._rootfs.remove(self.id)


def network_namespace(user: int) -> int:
    """A handle on a new one that belongs to the user namespace `user`."""
    ready, entered = os.pipe()
    done, hold = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(hold)
            kernel.setns(user, kernel.CLONE_NEWUSER)
            kernel.unshare(CLONE_NEWNET)
            os.write(entered, b"+")
            os.read(done, 1)
        finally:
            os._exit(0)
    os.close(entered)
    os.close(done)
    assert os.read(ready, 1) == b"+"
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    os.close(ready)
    os.close(hold)
    os.waitpid(pid, 0)
    return handle


def spoiled(made: dict[str, Any], spoil: dict[str, Any]) -> dict[str, Any]:
    """Dictionaries are merged, everything else is replaced; a function gets the old value."""
    for key, value in spoil.items():
        if isinstance(value, dict):
            spoiled(made[key], value)
        else:
            made[key] = value(made.get(key)) if callable(value) else value
    return made


def _nothing_is_loaded(event: str, _: tuple[Any, ...]) -> None:
    """T7: whatever a process of ours opens after it has entered, it opens in the tenant's file system."""
    if event in ("open", "import", "ctypes.dlopen", "ctypes.dlsym"):
        os._exit(LOADED)


def _enter(machine: Machine, command: Sequence[str], program: bytes, stdin: int, stdout: int) -> None:
    code = 125
    try:
        machine.join(os.getpid())
        handles = [os.open(f"/proc/{machine.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
        for handle in handles:
            kernel.setns(handle, 0)
        sys.addaudithook(_nothing_is_loaded)
        pid = os.fork()
        if pid == 0:
            os.chdir("/")
            for source, target in ((stdin, 0), (stdout, 1), (stdout, 2)):
                os.dup2(source, target)
            os.closerange(3, 1024)
            apply.apply(program)
            os.execve(command[0], command, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"})  # noqa: S606
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF
    except BaseException:
        os.write(stdout, repr(sys.exc_info()[1]).encode())
    finally:
        os._exit(code)
