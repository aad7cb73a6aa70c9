"""All that a fake machine is, as data: so that it outlives the agent, and, saved to a file, the agent's process."""

from msgspec import Struct, field

from gpuaas.wire.node import KeySpec


class Container(Struct):
    running: bool
    restarts: int
    boot_id: str
    config: str
    gpus: list[str]
    cpus: int = 1
    memory_mib: int = 0
    started_at: float = 0.0
    ended: str = ""
    has_view: bool = True  # False: an older agent started it, and runtimes do not arrive in it


class Login(Struct):
    session: str
    fingerprint: str


class Told(Struct):
    """News that nobody has put on record yet."""

    key: str
    kind: str
    id: str
    at: float
    data: dict[str, str]


class Devices(Struct):
    gpus: list[str]
    restarts: int  # the counter they were last reset for


class State(Struct):
    """Keyed by allocation unless said otherwise."""

    boot_id: str
    boots: int = 1
    layers: dict[str, int] = field(default_factory=dict)  # first id of its range
    idmaps: dict[str, int] = field(default_factory=dict)
    devices: dict[str, Devices] = field(default_factory=dict)
    netns: set[str] = field(default_factory=set)
    veths: set[str] = field(default_factory=set)
    ports: dict[str, int] = field(default_factory=dict)
    keys: dict[str, list[KeySpec]] = field(default_factory=dict)
    host_keys: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, list[Login]] = field(default_factory=dict)
    logins: int = 0
    news: list[Told] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)  # of runtimes, by digest: bytes
    verified: dict[str, float] = field(default_factory=dict)  # image: when, in unix seconds
    views: dict[str, dict[str, str]] = field(default_factory=dict)  # <bundle>/<version>: digest
    links: dict[str, dict[str, str]] = field(default_factory=dict)  # bundle: its current version
    described: set[str] = field(default_factory=set)  # a file says which runtimes these have
    containers: dict[str, Container] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    memory: dict[str, str] = field(default_factory=dict)  # GPU: the allocation whose data it still carries
    dirty: dict[str, str] = field(default_factory=dict)  # GPU: why nobody else may have it before it was scrubbed
    refused: list[tuple[str, str]] = field(default_factory=list)  # GPU, and who was to get it although it was dirty
    leaks: list[tuple[str, str, str]] = field(default_factory=list)  # GPU, whose data was found, who found it

    def parts(self, id: str) -> frozenset[str]:
        held = {
            "rootfs": id in self.layers or id in self.idmaps,
            "devices": id in self.devices,
            "network": id in self.netns or id in self.veths or id in self.ports,
            "access": id in self.keys or id in self.host_keys,
            "container": id in self.containers,
            "runtimes": id in self.described,
        }
        return frozenset(part for part, there in held.items() if there)

    def ids(self) -> list[str]:
        tables = (self.layers, self.idmaps, self.devices, self.netns, self.veths, self.ports)
        more = (self.keys, self.host_keys, self.containers, self.described)
        # list(): another thread may add to a table meanwhile.
        return sorted({id for table in (*tables, *more) for id in list(table)})

    def reboot(self, boot_id: str) -> None:
        """What lives in memory and in the kernel is gone; layers, host keys and the GPUs' own memory are not."""
        self.boot_id = boot_id
        self.boots += 1
        for table in (self.idmaps, self.devices, self.ports, self.keys, self.sessions, self.containers, self.views):
            table.clear()
        self.links.clear()
        self.netns.clear()
        self.veths.clear()
