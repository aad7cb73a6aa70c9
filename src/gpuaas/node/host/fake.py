"""A machine that is only a model: it refuses what a real one refuses, and keeps its state when the agent dies.

Ships with the product (simulated GPUs, demos) and carries the knobs that tests and the simulation turn.
"""

import hashlib
import socket
import time
from collections.abc import Callable, Collection, Iterator
from collections.abc import Container as Listed
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from gpuaas.kit.errors import HostError
from gpuaas.node.host import fake_gpus, fake_runtimes, fake_use
from gpuaas.node.host.fake_state import Container, Devices, Login, State, Told
from gpuaas.node.host.faults import Crash, Faults
from gpuaas.node.host.interface import Disk, Machine, News, Present, boot_config
from gpuaas.wire.node import AllocationBody, GpuReport, Inventory, KeySpec, RuntimeReport, Sample, Scrub

__all__ = ["Crash", "FakeDisk", "FakeHost"]

STATE_FILE = "host.json"
IDS_PER_RANGE = 65536


class FakeDisk(Faults):
    """Survives the agent. Hook points are `write:before|after` and `remove:before|after`, with the file's name as id.

    They lie inside the journal's lock: crash there, but let no other greenlet of the same agent run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.reach("write:before", name)
        self.files[name] = data
        self.reach("write:after", name)

    def remove(self, name: str) -> None:
        self.reach("remove:before", name)
        self.files.pop(name, None)
        self.reach("remove:after", name)

    def names(self) -> list[str]:
        return sorted(self.files)

    def tear(self, name: str, data: bytes = b'{"id": "al-') -> None:
        """What a broken file system leaves behind."""
        self.files[name] = data


class FakeHost(Faults):
    def __init__(
        self,
        gpus: str = "8xH100",
        name: str = "fake",
        address: str = "127.0.0.1",
        *,
        cpus: int | None = None,
        memory_mib: int | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(sleep)
        self.name = name
        self.state = State(boot_id=f"boot-{name}-1")
        self.log: list[tuple[str, str]] = []
        self.missing: set[str] = set()  # GPUs that fell off the bus
        self.hidden: set[tuple[str, int]] = set()  # servers
        self.notices: list[tuple[str, str]] = []  # what people read on their terminals
        self.trouble: dict[str, str] = {}  # GPU: why it is not healthy
        self.use: dict[str, dict[str, Any]] = {}  # allocation: fields of its samples that are other than modelled
        self.every_image = False  # as if all images of runtimes had been fetched long ago
        self.damaged: set[str] = set()  # images of which a byte has changed
        self.touched: set[str] = set()  # images whose files are not as they were when they were last read
        self.unusable: set[str] = set()  # images that the kernel does not mount
        self.run_from: set[tuple[str, str]] = set()  # allocation and <bundle>/<version>: somebody runs it
        self.room_bytes: int | None = None  # for images
        self.disk_low = False  # as far as images are concerned
        self.clock: Callable[[], float] = time.time
        self.ready = True
        self.reason = ""
        self._inventory = fake_gpus.inventory(gpus, name, address, cpus, memory_mib)
        self._disk: Disk | None = None
        self._asked: dict[str, set[str]] = {}  # the versions that each allocation should see
        self._arriving: dict[str, tuple[int, Any]] = {}  # image: bytes so far, their sha256; gone with the agent

    @classmethod
    def saved(cls, disk: Disk, gpus: str, name: str, address: str, boot_id: str = "") -> "FakeHost":
        """A machine whose state is kept on `disk`, so that it outlives this process, until another `boot_id`."""
        host = cls(gpus, name, address)
        data = disk.read(STATE_FILE)
        if data is not None:
            try:
                host.state = msgspec.json.decode(data, type=State)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                host.state = State(boot_id=boot_id or host.state.boot_id)
        if boot_id and host.state.boot_id != boot_id:
            host.state.reboot(boot_id)
        host._disk = disk
        host._save()
        return host

    # what tests read and turn

    @property
    def starts(self) -> dict[str, int]:
        return self.state.starts

    @property
    def memory(self) -> dict[str, str]:
        return self.state.memory

    def gpu_uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self._inventory.gpus]

    def reboot(self) -> None:
        self.state.reboot(f"boot-{self.name}-{self.state.boots + 1}")
        self._save()

    def kill(self, id: str, ended: str = "") -> None:
        """Its container dies by itself; `ended` says how, if anybody saw it."""
        if id in self.state.containers:
            self.state.containers[id].running = False
            self.state.containers[id].ended = ended
            self._end_sessions(id, "the machine stopped")
        self._save()

    def login(self, id: str, fingerprint: str) -> bool:
        """Somebody comes with this key; the session lasts until the key or the container goes."""
        machine = self.state.containers.get(id)
        key = next((key for key in self.state.keys.get(id, []) if key.fingerprint == fingerprint), None)
        if machine is None or not machine.running or id not in self.state.ports or key is None:
            return False
        self.state.logins += 1
        session = f"s{self.state.logins}"
        self.state.sessions.setdefault(id, []).append(Login(session, fingerprint))
        who = {"user_id": key.user_id, "fingerprint": fingerprint, "source": "192.0.2.1"}
        self._tell(id, "session.opened", session, who)
        return True

    # the Host interface

    def boot_id(self) -> str:
        return self.state.boot_id

    def inventory(self) -> Inventory:
        gpus = self._gpus()
        well = {gpu.uuid for gpu in gpus if not gpu.trouble}
        slots = [slot for slot in self._inventory.slots if well.issuperset(slot.gpus)]
        return msgspec.structs.replace(self._inventory, gpus=gpus, slots=slots, ready=self.ready, reason=self.reason)

    def present(self) -> list[Present]:
        with self.mutex:
            return [Present(id, self.state.parts(id)) for id in self.state.ids()]

    def rootfs_ensure(self, id: str, body: AllocationBody) -> None:
        with self._verb("rootfs_ensure", id):
            with self.mutex:
                for other, base in list(self.state.layers.items()):
                    if other != id and abs(base - body.uid_base) < IDS_PER_RANGE:
                        raise HostError("rootfs_ensure", id, f"the ids from {body.uid_base} belong to {other}")
                self.state.layers[id] = body.uid_base
            self._part("rootfs_ensure:layer", id)
            self.state.idmaps[id] = body.uid_base

    def rootfs_remove(self, id: str) -> None:
        with self._verb("rootfs_remove", id):
            self._idle("rootfs_remove", id)
            self.state.idmaps.pop(id, None)
            self._part("rootfs_remove:idmap", id)
            self.state.layers.pop(id, None)

    def devices_ensure(self, id: str, body: AllocationBody) -> None:
        gpus = [gpu for slot in body.slots for gpu in slot.gpus]
        with self._verb("devices_ensure", id):
            for gpu in gpus:
                self._known("devices_ensure", id, gpu)
            held = self.state.devices.get(id)
            if held is not None and sorted(held.gpus) == sorted(gpus) and held.restarts >= body.restarts:
                return
            self._idle("devices_ensure", id)
            self.log.append(("reset", id))
            self._part("devices_ensure:reset", id)
            with self.mutex:
                for gpu in gpus:
                    self._free("devices_ensure", id, gpu)
                self.state.dirty |= dict.fromkeys(gpus, f"given to {id}")
                self.state.devices[id] = Devices(gpus, body.restarts)

    def devices_remove(self, id: str, gpus: list[str]) -> list[Scrub]:
        with self._verb("devices_remove", id):
            self._idle("devices_remove", id)
            held = self.state.devices.get(id)
            scrubs = [self._scrub(id, gpu) for gpu in sorted({*gpus, *(held.gpus if held else [])})]
            self._part("devices_remove:scrubbed", id)
            self.state.devices.pop(id, None)
        return scrubs

    def network_ensure(self, id: str, body: AllocationBody) -> None:
        with self._verb("network_ensure", id):
            self.state.netns.add(id)
            self._part("network_ensure:netns", id)
            self.state.veths.add(id)
            self._part("network_ensure:veth", id)
            with self.mutex:
                for other, port in list(self.state.ports.items()):
                    if other != id and port == body.ssh_port:
                        raise HostError("network_ensure", id, f"port {port} is in use by {other}")
                self.state.ports[id] = body.ssh_port

    def network_remove(self, id: str) -> None:
        with self._verb("network_remove", id):
            self.state.ports.pop(id, None)
            self._part("network_remove:port", id)
            self.state.veths.discard(id)
            self._part("network_remove:veth", id)
            self.state.netns.discard(id)

    def access_ensure(self, id: str, keys: list[KeySpec]) -> str:
        with self._verb("access_ensure", id):
            key = self.state.host_keys.setdefault(id, f"ssh-ed25519 {id.replace('-', '')}")
            self._part("access_ensure:host_key", id)
            self.state.keys[id] = list(keys)
            self._end_sessions(id, "the key was taken away", listed={key.fingerprint for key in keys})
        return key

    def access_remove(self, id: str) -> None:
        with self._verb("access_remove", id):
            self._end_sessions(id, "access was taken away")
            self.state.keys.pop(id, None)
            self._part("access_remove:keys", id)
            self.state.host_keys.pop(id, None)

    def container(self, id: str) -> Machine | None:
        box = self.state.containers.get(id)
        return None if box is None else Machine(box.running, box.restarts, box.boot_id, box.config, box.ended)

    def container_start(self, id: str, body: AllocationBody) -> None:
        with self._verb("container_start", id):
            self._idle("container_start", id)
            lacking = {"rootfs", "devices", "network", "access"} - self.state.parts(id)
            if lacking:
                raise HostError("container_start", id, f"there is no {', '.join(sorted(lacking))}")
            gpus = list(self.state.devices[id].gpus)
            box = Container(
                False, body.restarts, self.state.boot_id, boot_config(body), gpus, body.cpus, body.memory_mib
            )
            self.state.containers[id] = box
            self._part("container_start:created", id)
            for gpu in gpus:
                if self.state.memory.get(gpu, id) != id:
                    self.state.leaks.append((gpu, self.state.memory[gpu], id))
                self.state.memory[gpu] = id
            box.running, box.started_at = True, self.clock()
            self.state.starts[id] = self.state.starts.get(id, 0) + 1

    def container_stop(self, id: str) -> None:
        with self._verb("container_stop", id):
            box = self.state.containers.get(id)
            self._end_sessions(id, "the machine stopped")
            if box is not None:
                box.running = False
                self._part("container_stop:killed", id)
            self.state.containers.pop(id, None)

    def runtimes_ensure(self, id: str, body: AllocationBody) -> list[RuntimeReport]:
        if not body.runtimes and id not in self.state.described and not self.state.views.get(id):
            return []
        with self._verb("runtimes_ensure", id):
            if id not in self.state.layers:
                raise HostError("runtimes_ensure", id, "there is no rootfs")
            self.state.described.add(id)
            self._asked[id] = {f"{each.bundle}/{each.version}" for each in body.runtimes}
            run = {key for other, key in self.run_from if other == id}
            switching = partial(self._part, "runtimes_ensure:shown", id)
            images = fake_runtimes.Images(self._has_image, self._arrived, self.touched, self.unusable)
            reports = fake_runtimes.show(self.state, id, body.runtimes, images, switching, run)
            if not body.runtimes:
                self.state.described.discard(id)
        return reports

    def runtimes_remove(self, id: str) -> None:
        with self._verb("runtimes_remove", id):
            self.state.links.pop(id, None)
            self.state.views.pop(id, None)
            self.state.described.discard(id)

    def images(self) -> dict[str, int]:
        return dict(self.state.images)

    def image_begin(self, digest: str, size: int) -> int:
        with self._verb("image_begin", digest):
            if self.room_bytes is not None and size > self.room_bytes:
                raise HostError("fetch", digest, "there is not enough room for it")
            return self._arrived(digest)

    def image_append(self, digest: str, offset: int, data: bytes) -> bool:
        with self._verb("image_append", digest):
            if self.room_bytes is not None and len(data) > self.room_bytes:
                raise HostError("write", digest, "there is not enough room for it")
            count, sha256 = self._arriving.setdefault(digest, (0, hashlib.sha256()))
            if count != offset:
                return False
            sha256.update(data)
            self._arriving[digest] = (count + len(data), sha256)
        return True

    def image_end(self, digest: str) -> bool:
        with self._verb("image_end", digest):
            count, sha256 = self._arriving.pop(digest, (0, hashlib.sha256()))
            if sha256.hexdigest() != digest:
                return False
            self.state.images[digest] = count
            self.state.verified[digest] = self.clock()
            self.damaged.discard(digest)
            self.touched.discard(digest)
        return True

    def images_low(self) -> bool:
        return self.disk_low

    def images_tidy(self, is_kept: Callable[[str], bool]) -> list[str]:
        used = {digest for view in self.state.views.values() for digest in view.values()}
        removed = []
        for digest in sorted({*self.state.images, *self._arriving} - used):
            with self._verb("images_tidy", digest):
                if not is_kept(digest):
                    self._arriving.pop(digest, None)
                    if self.state.images.pop(digest, None) is not None:
                        removed.append(digest)
        return removed

    def images_unread(self) -> dict[str, bool]:
        return {digest: True for digest in sorted(self.touched) if digest in self.state.images}

    def image_check(self, digest: str, go_on: Callable[[], bool], *, gently: bool = False) -> bool:
        with self._verb("image_check", digest):
            self.touched.discard(digest)
            if digest in self.damaged or digest not in self.state.images:
                self.state.images.pop(digest, None)
                return False
            self.state.verified[digest] = self.clock()
        return True

    def image_scrub(self, before: float, go_on: Callable[[], bool]) -> str | None:
        digest = min(self.state.images, key=lambda each: self.state.verified.get(each, 0.0), default=None)
        if digest is None or self.state.verified.get(digest, 0.0) >= before:
            return None
        return None if self.image_check(digest, go_on) else digest

    def runtimes_busy(self) -> set[str]:
        views = self.state.views
        return {id for id, key in self.run_from if key in views.get(id, {}) and key not in self._asked.get(id, set())}

    def connect(self, id: str, source: str) -> socket.socket:
        """A modelled machine greets, and has nothing behind it."""
        machine = self.state.containers.get(id)
        if machine is None or not machine.running:
            raise HostError("connect", id, "it is not running")
        theirs, ours = socket.socketpair()
        with ours:
            ours.sendall(b"SSH-2.0-modelled\r\n")
        return theirs

    def notify(self, id: str, text: str) -> int:
        """A modelled machine has a terminal for everybody who is logged in."""
        box = self.state.containers.get(id)
        there = len(self.state.sessions.get(id, [])) if box is not None and box.running else 0
        if there:
            self.notices.append((id, text))
        return there

    def hide(self, servers: Collection[tuple[str, int]]) -> None:
        self.hidden = set(servers)

    def rest(self) -> None:
        pass  # nothing takes time here

    def news(self) -> list[News]:
        return [News(told.key, told.kind, told.id, told.at, told.data) for told in self.state.news]

    def forget(self, news: list[News]) -> None:
        known = {one.key for one in news}
        self.state.news = [told for told in self.state.news if told.key not in known]
        self._save()

    def sample(self, id: str) -> Sample | None:
        box = self.state.containers.get(id)
        if box is None or not box.running:
            return None
        gpus = [gpu for gpu in self._gpus() if gpu.uuid in box.gpus]
        sessions = len(self.state.sessions.get(id, []))
        modelled = fake_use.sample(id, box, gpus, sessions, self.clock())
        return msgspec.structs.replace(modelled, **self.use.get(id, {}))

    # how verbs work

    def _has_image(self, digest: str) -> bool:
        return self.every_image or digest in self.state.images

    def _arrived(self, digest: str) -> int:
        return self._arriving[digest][0] if digest in self._arriving else 0

    def _gpus(self) -> list[GpuReport]:
        there = [gpu for gpu in self._inventory.gpus if gpu.uuid not in self.missing]
        return [msgspec.structs.replace(gpu, trouble=self.trouble.get(gpu.uuid, "")) for gpu in there]

    def _end_sessions(self, id: str, reason: str, listed: Listed[str] = ()) -> None:
        for login in self.state.sessions.pop(id, []):
            if login.fingerprint in listed:
                self.state.sessions.setdefault(id, []).append(login)
            else:
                self._tell(id, "session.closed", login.session, {"reason": reason})

    def _tell(self, id: str, kind: str, session: str, data: dict[str, str]) -> None:
        key = f"{session}/{kind}"
        self.state.news.append(Told(key, kind, id, self.clock(), {"session": session, **data}))

    @contextmanager
    def _verb(self, verb: str, id: str) -> Iterator[None]:
        self.log.append((verb, id))
        self.reach(f"{verb}:before", id)
        yield
        self._part(f"{verb}:after", id)

    def _part(self, point: str, id: str) -> None:
        self._save()
        self.reach(point, id)

    def _save(self) -> None:
        if self._disk is not None:
            with self.mutex:
                self._disk.write(STATE_FILE, msgspec.json.encode(self.state))

    def _idle(self, verb: str, id: str) -> None:
        box = self.state.containers.get(id)
        if box is not None and box.running:
            raise HostError(verb, id, "its container is running")

    def _known(self, verb: str, id: str, gpu: str) -> None:
        if gpu not in self.gpu_uuids():
            raise HostError(verb, id, f"this host has no GPU {gpu}", transient=False)
        if gpu in self.missing:
            raise HostError(verb, id, f"GPU {gpu} does not answer")
        self._free(verb, id, gpu)

    def _free(self, verb: str, id: str, gpu: str) -> None:
        holder = self._holder(id, gpu)
        if holder is not None:
            raise HostError(verb, id, f"GPU {gpu} is in use by {holder}")
        before, dirty = self.state.devices.get(id), self.state.dirty.get(gpu)
        if dirty and dirty != f"given to {id}" and not (before and gpu in before.gpus):
            self.state.refused.append((gpu, id))
            raise HostError(verb, id, f"GPU {gpu} was not scrubbed: {dirty}")

    def _holder(self, id: str, gpu: str) -> str | None:
        held = list(self.state.devices.items())
        return next((other for other, devices in held if other != id and gpu in devices.gpus), None)

    def _scrub(self, id: str, gpu: str) -> Scrub:
        holder = self._holder(id, gpu)
        if holder is not None:
            return Scrub(gpu, clean=False, evidence=f"in use by {holder}")
        if gpu not in self.gpu_uuids() or gpu in self.missing:
            return Scrub(gpu, clean=False, evidence="the GPU does not answer")
        self.state.dirty[gpu] = "a scrub of it has begun and not ended"
        fault = self.trip("scrub", id)
        if fault is not None:
            return Scrub(gpu, clean=False, evidence=fault.cause)
        self.state.memory.pop(gpu, None)
        self._part("devices_remove:scrub", id)
        self.state.dirty.pop(gpu, None)
        return Scrub(gpu, clean=True, evidence="memory cleared and read back as zero")
