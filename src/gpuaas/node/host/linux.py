"""A real machine: the parts put together to what the agent asks of a host. Each verb is a few lines; the work is below.

The order of things that every start depends on: image, platform tools, mount helper (it copies the mounts that it
finds), then allocations.
"""

import dataclasses
import os
import platform
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import is_id
from gpuaas.node.host import (
    access,
    cpus,
    doctor,
    findings,
    identity_files,
    limits,
    run_directory,
    safepath,
    terminals,
    tools,
)
from gpuaas.node.host.access import Access
from gpuaas.node.host.boot import boot_id
from gpuaas.node.host.cgroups import layout as cgroup_layout
from gpuaas.node.host.cgroups import moves
from gpuaas.node.host.cgroups.limits import Limits
from gpuaas.node.host.cgroups.usage import usage
from gpuaas.node.host.container.boot import Boot, ReadOnlyBind, View
from gpuaas.node.host.devices import Devices
from gpuaas.node.host.gpus import simulated
from gpuaas.node.host.gpus.gpu import cards, report, slots
from gpuaas.node.host.gpus.scrub import cleared_by
from gpuaas.node.host.gpus.source import AnyGpus, RealGpus, SimulatedGpus
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.interface import Machine, News, Present, boot_config
from gpuaas.node.host.listeners import Listeners
from gpuaas.node.host.machines import Machines, Record, Start
from gpuaas.node.host.mounts.mounts import Attribute
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import AnyOperation, Bind, Directory, Unmount
from gpuaas.node.host.network.network import Network
from gpuaas.node.host.network.resolvers import resolvers
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.rootfs import Rootfs
from gpuaas.node.host.runtimes import descriptor, views
from gpuaas.node.host.runtimes.runtimes import Runtimes
from gpuaas.node.host.supervisor import news, requests
from gpuaas.wire.node import AllocationBody, Inventory, KeySpec, RuntimeReport, Sample, Scrub

GRACE_SECONDS = 1.0
RUNTIME_PROGRAM = f"/usr/local/bin/{tools.RUNTIME}"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as runtimes call them
_MIB = 2**20
_READ_ONLY = Attribute.READ_ONLY | Attribute.NOSUID | Attribute.NODEV


@dataclass(frozen=True)
class LinuxConfig:
    """Everything has another name for a second agent on the same machine."""

    paths: Paths = field(default_factory=Paths)
    hostname: str = "localhost"
    address: str = "127.0.0.1"
    simulate_gpus: str = ""
    clear_mig: str = ""
    prefix: str = "gpuaas"  # of cgroups and of the nft table
    interfaces: str = "gv"
    pool: str = "198.18.0.0/15"
    denied: tuple[str, ...] = ()  # networks that machines never reach
    disk_mib: int = 64 * 1024
    disk_limit: str = limits.DEFAULT  # its driver
    pids: int = 32768  # processes and threads of a machine
    runtime: str = ""  # the OCI runtime; empty: the best that is installed
    start_seconds: float = 30.0  # for the OCI runtime
    base_image: str | None = None
    quick_cgroups: bool = True  # see cgroups/moves.py


class LinuxHost:
    def __init__(self, config: LinuxConfig) -> None:
        paths = config.paths
        self._config = config
        self._boot_id = boot_id()
        self._layout = cgroup_layout.detect()
        self._images = Images(paths, config.base_image)
        self._tools = tools.Tools(paths)
        # What is mounted below the run directory must be there before the helper copies the mounts that it finds.
        self.gpus: AnyGpus = _gpus(config)
        self._namespaces = Namespaces(paths, keep=[paths.run / "tools", *simulated.given(_simulated(paths))])
        self._rootfs = Rootfs(
            paths,
            self._images,
            self._namespaces,
            limits.named(config.disk_limit),
            config.disk_mib,
        )
        self._network = Network(
            paths,
            self._namespaces.helper,
            name=config.prefix,
            interfaces=config.interfaces,
            pool=config.pool,
            denied=config.denied,
        )
        self._devices = Devices(paths, self.gpus, self._boot_id)
        self._access = Access(paths)
        self._runtimes = Runtimes(paths, self._namespaces)
        self._machines = Machines(
            paths, self._namespaces, self._layout, config.prefix, config.runtime, start_seconds=config.start_seconds
        )
        self._listeners = Listeners()
        self._choosing = threading.Lock()
        records = {id: self._machines.record(id) for id in self._machines.ids()}
        self._cpus = {id: record.cpus for id, record in records.items() if record is not None}
        self._untouched: set[str] = set()  # no program of a tenant has ever run on these file systems
        self._ready, self._reason = False, "the node has just been started"
        self._installed = cards(self.gpus.found().gpus)

    # before and after everything

    def prepare(self) -> None:
        """Makes this host ready to take machines. Takes a minute the first time: the base image is built."""
        try:
            self._reason = "the node is being examined"
            config = self._config
            found = doctor.check(
                config.paths,
                simulated_gpus=config.simulate_gpus,
                interfaces=config.interfaces,
                clear_mig=config.clear_mig,
                disk_limit=config.disk_limit,
            )
            ready, reason = findings.ready(found)
            if ready:
                run_directory.ensure(config.paths.run)
                self._machines.runtime()
                self._reason = "the base image is being built"
                image = self._images.ensure()
                self._reason = "the node's network is being made"
                self._tools.ensure(self._images.tree(image))
                self._network.prepare()
                if self._config.quick_cgroups:
                    moves.make_quick(self._layout)
        except HostError as error:
            ready, reason = False, f"{error.action} {error.target}: {error.cause}"
        self._ready, self._reason = ready, reason

    def close(self) -> None:
        """The agent ends; machines go on."""
        self._listeners.close()
        self._namespaces.close()

    def shut_down(self) -> None:
        """As a reboot would leave it: nothing runs, and nothing of ours is left but files."""
        for each in self.present():
            self.container_stop(each.id)
            self._access.close(each.id)
            self.network_remove(each.id)
            self._rootfs.close(each.id)
            self._runtimes.close(each.id)
            self._leave_no_directory(each.id)
        self._network.clear()
        self._runtimes.clear()
        self._namespaces.clear()
        self._tools.clear()
        self._machines.clear()
        simulated.clear(_simulated(self._config.paths))
        run_directory.clear(self._config.paths.run)

    # the Host interface

    def boot_id(self) -> str:
        return self._boot_id

    def inventory(self) -> Inventory:
        found = self.gpus.found().gpus
        count, memory_mib = os.cpu_count() or 1, _memory_mib()
        if self._config.simulate_gpus:
            count = max(count, len(found))  # simulated GPUs share what there is; a slot has at least one
        proposals = slots(found, count, memory_mib, installed=self._installed)
        return Inventory(
            self._config.hostname,
            self._config.address,
            count,
            memory_mib,
            [report(gpu) for gpu in found],
            proposals,
            ready=self._ready,
            reason=self._reason,
            architecture=ARCHITECTURES.get(platform.machine(), ""),
        )

    def present(self) -> list[Present]:
        sources: dict[str, Iterable[str]] = {
            "rootfs": self._rootfs.ids(),
            "devices": self._devices.ids(),
            "network": {*self._network.ids(), *self._listeners.ids()},
            "access": self._access.ids(),
            "container": self._machines.ids(),
            "runtimes": self._runtimes.ids(),
        }
        parts: dict[str, set[str]] = {}
        for part, ids in sources.items():
            for id in ids:
                if is_id(id, id[:2]):
                    parts.setdefault(id, set()).add(part)
        return [Present(id, frozenset(parts[id])) for id in sorted(parts)]

    def rootfs_ensure(self, id: str, body: AllocationBody) -> None:
        self._end_half_started(id)
        if self._rootfs.ensure(id, body, self._platform_mounts(id, body.uid_base)):
            self._untouched.add(id)
            self._runtimes.fresh(id)

    def rootfs_remove(self, id: str) -> None:
        self._idle("rootfs_remove", id)
        self._untouched.discard(id)
        self._rootfs.remove(id)
        self._runtimes.close(id)
        self._leave_no_directory(id)

    def devices_ensure(self, id: str, body: AllocationBody) -> None:
        if not self._devices.ready(id, body):
            self._idle("devices_ensure", id, "; its GPUs, or a damaged record of them, can be set right by a restart")
        self._devices.ensure(id, body)

    def devices_remove(self, id: str, gpus: list[str]) -> list[Scrub]:
        self._idle("devices_remove", id)
        return self._devices.remove(id, gpus)

    def network_ensure(self, id: str, body: AllocationBody) -> None:
        self._network.ensure(
            id, seat=body.seat, uid_base=body.uid_base, project_id=body.project_id, open_network=body.open_network
        )
        if not requests.answers(self._config.paths.live(id)):
            self._listeners.ensure(id, body.ssh_port)

    def network_remove(self, id: str) -> None:
        self._listeners.remove(id)
        self._network.remove(id)

    def access_ensure(self, id: str, keys: list[KeySpec]) -> str:
        layer = self._rootfs.layer(id)
        if layer is None:
            raise HostError("access_ensure", id, "there is no rootfs")
        environment = dict(item.split("=", 1) for item in self._devices.edits(id).env) if self._devices.held(id) else {}
        return self._access.ensure(id, layer.uid_base, keys, environment)

    def access_remove(self, id: str) -> None:
        self._access.remove(id)

    def container(self, id: str) -> Machine | None:
        record = self._machines.record(id)
        if record is None:
            return None
        runs = self._runs(record)
        ended = "" if runs or record.first.lives else self._machines.ended(id, record)
        return Machine(runs, record.restarts, record.boot_id, record.config, ended)

    def container_start(self, id: str, body: AllocationBody) -> None:
        self._idle("container_start", id)
        self._end_half_started(id)
        lacking = {"rootfs", "devices", "network", "access"} - self._parts(id)
        if lacking:
            raise HostError("container_start", id, f"there is no {', '.join(sorted(lacking))}")
        with self._listeners.taken(id, body.ssh_port) as listener, self._namespaces_of(id) as (user, network):
            start = self._start(id, body, user, network)
            if not self._machines.adopt(id, start, listener):
                self._machines.stop(id, "it is started anew", 0)
                if id not in self._untouched:
                    start = self._checked(id, start)
                self._untouched.discard(id)
                self._machines.start(id, start, listener)

    def container_stop(self, id: str) -> None:
        self._machines.stop(id, "the machine was stopped", GRACE_SECONDS)
        with self._choosing:
            self._cpus.pop(id, None)

    def runtimes_ensure(self, id: str, body: AllocationBody) -> list[RuntimeReport]:
        if not self._namespaces.pinned(id):
            raise HostError("runtimes_ensure", id, "there is no rootfs")
        record = self._machines.record(id)
        first = record.first.pid if record is not None and self._runs(record) else None
        return self._runtimes.ensure(id, body.uid_base, body.runtimes, first)

    def runtimes_remove(self, id: str) -> None:
        self._runtimes.remove(id)

    def images(self) -> dict[str, int]:
        return self._runtimes.store.digests()

    def image_begin(self, digest: str, size: int) -> int:
        return self._runtimes.store.begin(digest, size)

    def image_append(self, digest: str, offset: int, data: bytes) -> bool:
        return self._runtimes.store.append(digest, offset, data)

    def image_end(self, digest: str) -> bool:
        return self._runtimes.store.settle(digest)

    def images_low(self) -> bool:
        return self._runtimes.store.low()

    def images_tidy(self, is_kept: Callable[[str], bool]) -> list[str]:
        return self._runtimes.tidy(is_kept)

    def images_unread(self) -> dict[str, bool]:
        return self._runtimes.unread()

    def image_check(self, digest: str, go_on: Callable[[], bool], *, gently: bool = False) -> bool:
        return self._runtimes.check(digest, go_on, gently=gently)

    def image_scrub(self, before: float, go_on: Callable[[], bool]) -> str | None:
        return self._runtimes.scrub(before, go_on)

    def runtimes_busy(self) -> set[str]:
        return self._runtimes.busy()

    def connect(self, id: str, source: str) -> socket.socket:
        mine, theirs = socket.socketpair()
        with theirs:
            if requests.ask(self._config.paths.live(id), requests.Connect(source), theirs.fileno()) is None:
                mine.close()
                raise HostError("connect", id, "it is not running")
        return mine

    def notify(self, id: str, text: str) -> int:
        record = self._machines.record(id)
        if record is None:
            return 0
        return terminals.write(record.first.pid, lambda: record.first.lives, text)

    def hide(self, servers: Collection[tuple[str, int]]) -> None:
        self._network.hide(servers)

    def rest(self) -> None:
        if self._ready:
            self._rootfs.rest()

    def news(self) -> list[News]:
        return news.taken(self._machines.news)

    def forget(self, told: list[News]) -> None:
        news.drop(self._machines.news, told)

    def sample(self, id: str) -> Sample | None:
        record, layer = self._machines.record(id), self._rootfs.layer(id)
        if record is None or layer is None or not self._runs(record):
            return None
        used = usage(self._machines.cgroup(id))
        received, sent = self._network.traffic(id)
        answer = requests.ask(self._config.paths.live(id), requests.Sessions())
        return Sample(
            id,
            at=time.time(),
            started_at=record.at,
            cpu_seconds=used.cpu_seconds,
            cpus=record.cpu_limit,
            memory_bytes=used.memory_bytes,
            memory_limit_bytes=record.memory_bytes,
            processes=used.pids,
            sessions=answer.sessions if answer else 0,
            oom_kills=used.out_of_memory_kills,
            disk_read_bytes=used.read_bytes,
            disk_written_bytes=used.written_bytes,
            disk_used_bytes=self._rootfs.used_bytes(id),
            disk_limit_bytes=layer.size_mib * _MIB if layer.limit != "none" else None,
            network_received_bytes=received,
            network_sent_bytes=sent,
            gpus=[self.gpus.sample(gpu) for gpu in self._devices.gpus(id)],
        )

    def _runs(self, record: Record) -> bool:
        return record.boot_id == self._boot_id and record.first.lives and record.supervisor.lives

    # how a start is put together

    def _start(self, id: str, body: AllocationBody, user: int, network: int) -> Start:
        paths, layer = self._config.paths, self._rootfs.layer(id)
        assert layer is not None
        live = paths.make_live(id)
        hostname = _hostname(body.name)
        files = identity_files.write(live, id, hostname, self._network.address(body.seat), resolvers())
        own = {live / "tools" / tools.RUNTIME: RUNTIME_PROGRAM, self._runtimes.prepare(id): descriptor.INSIDE}
        binds = [
            ReadOnlyBind(str(live / "tools"), tools.INSIDE),
            ReadOnlyBind(str(live / "access"), access.INSIDE),
            *(ReadOnlyBind(str(source), target) for source, target in (files | own).items()),
        ]
        boot = Boot(
            id=id,
            hostname=hostname,
            rootfs=self._rootfs.path(id),
            uid_base=layer.uid_base,
            user_namespace=f"/proc/{os.getpid()}/fd/{user}",
            network_namespace=f"/proc/{os.getpid()}/fd/{network}",
            cgroup=f"/{self._machines.cgroup(id).path}",
            init=(f"{tools.INSIDE}/{tools.INIT[0]}", *tools.INIT[1:]),
            shm_bytes=body.memory_mib * _MIB // 2,
            binds=tuple(binds),
            views=(View(str(live / views.DIRECTORY), views.INSIDE, read_only=True),),
            gpus=self._devices.edits(id),
        )
        return Start(
            boot=boot,
            limits=self._limits(id, body),
            sshd=tools.sshd(access.CONFIG),
            restarts=body.restarts,
            boot_id=self._boot_id,
            config=boot_config(body),
            at=time.time(),
        )

    def _checked(self, id: str, start: Start) -> Start:
        """A tenant who has put something else in the place of /opt has a machine all the same, without runtimes."""
        operations = self._platform_mounts(id, start.boot.uid_base)
        if self._rootfs.check(id, operations, [views.INSIDE, descriptor.INSIDE], [RUNTIME_PROGRAM]):
            return start
        boot, own = start.boot, (descriptor.INSIDE, RUNTIME_PROGRAM)
        binds = tuple(bind for bind in boot.binds if bind.target not in own)
        return dataclasses.replace(start, boot=dataclasses.replace(boot, binds=binds, views=()))

    def _platform_mounts(self, id: str, uid_base: int) -> list[AnyOperation]:
        """Again at every start: a newer agent brings newer tools."""
        source, own = self._config.paths.run / "tools", self._config.paths.live(id) / "tools"
        newest: list[AnyOperation] = [Directory(str(own)), Unmount(str(own)), Bind(str(source), str(own), _READ_ONLY)]
        return [*newest, *self._runtimes.operations(id, uid_base)]

    def _limits(self, id: str, body: AllocationBody) -> Limits:
        near = {gpu.numa for gpu in self._devices.gpus(id)}
        with self._choosing:
            online = cpus.online()
            taken = [cpu for other, cpuset in self._cpus.items() if other != id for cpu in cpus.own(cpuset, online)]
            self._cpus[id] = cpus.choose(body.cpus, near, taken, online)
        return Limits(
            cpus=min(body.cpus, os.cpu_count() or 1),
            cpuset=self._cpus[id],
            memory_bytes=body.memory_mib * _MIB,
            swap_bytes=0,
            pids=self._config.pids,
        )

    @contextmanager
    def _namespaces_of(self, id: str) -> Iterator[tuple[int, int]]:
        """Held open while the container is started: the OCI runtime finds them by this process."""
        user, network = self._network.open(id)
        try:
            yield user, network
        finally:
            os.close(user)
            os.close(network)

    def _parts(self, id: str) -> set[str]:
        there = {
            "rootfs": self._rootfs.layer(id) is not None and self._namespaces.pinned(id),
            "devices": self._devices.held(id) is not None,
            "network": self._network.complete(id),
            "access": self._access.ready(id),
        }
        return {part for part, present in there.items() if present}

    def _leave_no_directory(self, id: str) -> None:
        live = self._config.paths.live(id)
        if live.is_dir():
            safepath.remove_tree(live, identity_files.DIRECTORY)
            for directory in (live / "tools", live / views.DIRECTORY, live):
                with suppress(OSError):  # other parts of the machine keep things there too
                    directory.rmdir()

    def _end_half_started(self, id: str) -> None:
        """What an agent had begun to start when it was killed: it is not on record, but runs, and has the port."""
        if self._machines.record(id) is None and self._machines.left(id):
            self._machines.stop(id, "its start was cut off", 0)

    def _idle(self, verb: str, id: str, remedy: str = "") -> None:
        machine = self.container(id)
        if machine is not None and machine.running:
            raise HostError(verb, id, f"its container is running{remedy}")


def _gpus(config: LinuxConfig) -> AnyGpus:
    if config.simulate_gpus:
        return SimulatedGpus(_simulated(config.paths), config.simulate_gpus, config.hostname)
    return RealGpus(cleared_by(config.clear_mig))


def _simulated(paths: Paths) -> Path:
    return paths.state / "simulated-gpus"


def _hostname(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63] or "machine"


def _memory_mib() -> int:
    text = Path("/proc/meminfo").read_text()
    match = re.search(r"MemTotal:\s+(\d+) kB", text)
    return int(match[1]) // 1024 if match else 1024
