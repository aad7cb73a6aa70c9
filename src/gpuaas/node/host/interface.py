"""What the agent asks of a machine. Two implementations: `fake` (ships, with failure and delay knobs) and `linux`.

Contract of every verb, checked by the same tests on each implementation:
  - `..._ensure` may be called at any time, any number of times, after any crash; it ends in the same state.
  - `..._remove` is safe when `..._ensure` never ran or stopped half-way; absence is success.
  - A verb that cannot do its work raises HostError with a cause that a person can act on.
  - Nothing is remembered outside the machine itself: after a crash of the agent the answers are the same.
"""

import hashlib
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gpuaas.wire.node import AllocationBody, Inventory, KeySpec, RuntimeReport, Sample, Scrub


@dataclass(frozen=True)
class Machine:
    """A container as the host sees it. `restarts` and `config` are what it was started with, read from it."""

    running: bool
    restarts: int
    boot_id: str
    config: str = ""  # boot_config() of the body it was started with
    ended: str = ""  # how, in words, if it does not run any more and somebody saw it


@dataclass(frozen=True)
class Present:
    """What the host has of one allocation, found by looking at the host and not at any record."""

    id: str
    parts: frozenset[str] = field(default_factory=frozenset)  # of rootfs, devices, network, access, container, runtimes


@dataclass(frozen=True)
class News:
    """Something that happened to a machine, whether or not an agent was there: somebody came, or went.

    session.opened: session, user_id, fingerprint, source. session.closed: session, reason.
    """

    key: str  # of its own, for ever: the same news told twice has the same one
    kind: str
    id: str
    at: float  # unix seconds
    data: dict[str, str]


CONFIG_VERSION = "1:"
READING = "Its image is being read again."  # of a runtime that is not shown before


def boot_config(body: AllocationBody) -> str:
    """A digest of what a container gets only by being started. The prefix names this list of fields.

    Another prefix means that another agent version started the container: it is adopted, never restarted for that.
    """
    gpus = sorted(gpu for slot in body.slots for gpu in slot.gpus)
    asked = [gpus, body.cpus, body.memory_mib, body.seat, body.ssh_port, body.uid_base, body.image]
    return CONFIG_VERSION + hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:32]


def differ_in_runtimes(one: AllocationBody, other: AllocationBody) -> bool:
    """In nothing else: whatever becomes of its runtimes, a machine that was ready with one is ready with the other."""
    return msgspec.structs.replace(one, runtimes=other.runtimes, repairs=other.repairs) == other


class Disk(Protocol):
    """Small durable files of the agent. A write is atomic and survives a power cut once it returned.

    A disk that cannot do its work raises HostError. Names are made of [A-Za-z0-9._-] and do not start with a dot.
    """

    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...
    def names(self) -> list[str]: ...


class Host(Protocol):
    def boot_id(self) -> str:
        """Changes exactly when the machine was rebooted."""
        ...

    def inventory(self) -> Inventory: ...

    def present(self) -> list[Present]:
        """Everything on this host that looks like a part of an allocation, known or not."""
        ...

    # rootfs: the allocation's own layer over the base image, its id range, its disk limit
    def rootfs_ensure(self, id: str, body: AllocationBody) -> None: ...
    def rootfs_remove(self, id: str) -> None: ...

    # devices: the GPUs of its slots, and nothing else
    def devices_ensure(self, id: str, body: AllocationBody) -> None:
        """Makes the devices ready, and resets them once for each larger `body.restarts`, never under a container."""
        ...

    def devices_remove(self, id: str, gpus: list[str]) -> list[Scrub]:
        """Takes the devices away and scrubs them, these and any other that the host knows to be this allocation's.

        Evidence for every GPU, every time it is asked. A GPU that another allocation holds is left alone and not clean.
        """
        ...

    # network: namespace, address, the published SSH port, default-deny
    def network_ensure(self, id: str, body: AllocationBody) -> None: ...
    def network_remove(self, id: str) -> None: ...

    # access: the directory of authorized keys and the host key (stable for the life of the allocation)
    def access_ensure(self, id: str, keys: list[KeySpec]) -> str:
        """Exactly these keys get in. Ends sessions of keys that are no longer listed. Returns the public host key."""
        ...

    def access_remove(self, id: str) -> None: ...

    # container: the running machine
    def container(self, id: str) -> Machine | None: ...
    def container_start(self, id: str, body: AllocationBody) -> None:
        """Starts it with `body.restarts` on record, and verifies what runs against what was asked."""
        ...

    def container_stop(self, id: str) -> None:
        """Ends every process of it. Absent is success."""
        ...

    # runtimes: what it sees below /opt/gpuaas/runtimes, changed while it runs
    def runtimes_ensure(self, id: str, body: AllocationBody) -> list[RuntimeReport]:
        """Shows exactly `body.runtimes`, as far as their images are here; how each of them stands. Never waits.

        A version that somebody still runs stays until they have ended.
        """
        ...

    def runtimes_remove(self, id: str) -> None:
        """Nothing is shown any more, whoever uses it."""
        ...

    # images of runtimes, by digest
    def images(self) -> dict[str, int]:
        """Those that are complete, and how many bytes each has."""
        ...

    def image_begin(self, digest: str, size: int) -> int:
        """How many bytes of it have arrived. HostError when the disk has no room for the rest."""
        ...

    def image_append(self, digest: str, offset: int, data: bytes) -> bool:
        """False: other than `offset` bytes of it are here, and nothing was written. HostError when there is no room."""
        ...

    def image_end(self, digest: str) -> bool:
        """All of it has arrived. False: it is another one than its name says, and was thrown away."""
        ...

    def images_low(self) -> bool:
        """Whether their disk is so full that those that nobody uses should go at once."""
        ...

    def images_tidy(self, is_kept: Callable[[str], bool]) -> list[str]:
        """Throws away all others, and what has arrived of others, unless a machine sees them. Which ones went.

        Asked of each right before it goes: looking for machines that see it takes a while, and specs arrive meanwhile.
        """
        ...

    def images_unread(self) -> dict[str, bool]:
        """Those that should be read, and whether a machine waits for that.

        One whose file is not as it was when it was last read is shown to nobody before it was read again. One that
        a machine got just now, and that was not read for long, is read behind it.
        """
        ...

    def image_check(self, digest: str, go_on: Callable[[], bool], *, gently: bool = False) -> bool:
        """Reads it, while it may go on. False: it was not what its name says, or not here, and is not here now.

        It can be fetched again, under those who have it. `gently`: nobody waits for it.
        """
        ...

    def image_scrub(self, before: float, go_on: Callable[[], bool]) -> str | None:
        """The same, slowly, for the one that was verified longest ago, if that was before this unix time.

        The digest of one that was damaged.
        """
        ...

    def runtimes_busy(self) -> set[str]:
        """Allocations that still show a version that they should not, because somebody runs it."""
        ...

    def connect(self, id: str, source: str) -> socket.socket:
        """A stream to its sshd for somebody who comes through the server from `source`. The caller closes it."""
        ...

    def notify(self, id: str, text: str) -> int:
        """Writes a line to every terminal that is open on it; how many. A machine that does not run has none."""
        ...

    def hide(self, servers: Collection[tuple[str, int]]) -> None:
        """Machines reach none of these IPv4 addresses and ports, and again those that were hidden before."""
        ...

    def rest(self) -> None:
        """Nothing is asked of this host right now: time to make ready, bit by bit, what the next launch will need."""
        ...

    # what happens by itself
    def news(self) -> list[News]:
        """All that happened and was not forgotten yet, oldest first. Kept by the machine while no agent runs."""
        ...

    def forget(self, news: list[News]) -> None:
        """They are safely on record."""
        ...

    def sample(self, id: str) -> Sample | None:
        """What it uses now; None when it does not run."""
        ...
