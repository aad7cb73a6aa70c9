"""What an agent has to be told to start."""

from dataclasses import dataclass
from pathlib import Path

from gpuaas.kit.registry import Place, Registry


@dataclass(frozen=True)
class AgentConfig:
    server_url: str  # http(s)://host:port; of several replicas, with commas between them
    state_dir: Path
    name: str
    address: str = "127.0.0.1"  # where users reach the ports that this node publishes
    simulate_gpus: str = ""  # such as 8xH100; empty: the GPUs that are there
    clear_mig: str = ""  # a command that clears a MIG instance: {uuid}, {index} and {bus} are filled in
    join_token: str = ""  # needed once
    host: str = "linux"  # or modelled: a machine that is only data
    sample_seconds: float = 10.0  # between two looks at what machines use
    fetch_mib_per_second: float = 0  # of images of runtimes; 0: as fast as they come
    image_registry: str = ""  # registry.example/team/runtimes: asked for images of runtimes before the server is
    image_registry_credentials: Path | None = None  # like Docker's config.json
    # Everything below has another value for a second agent on the same machine.
    run_dir: Path = Path("/run/gpuaas")
    etc_dir: Path | None = None  # where operators look: see `Paths.etc`
    prefix: str = "gpuaas"  # of cgroups and of the nft table
    interfaces: str = "gv"  # what the names of network interfaces begin with
    pool: str = "198.18.0.0/15"  # the addresses of machines, behind this node's own
    denied: tuple[str, ...] = ()  # networks that machines never reach
    hide_servers: bool = True  # machines do not reach the servers that the agent dials, on their ports
    disk_mib: int = 64 * 1024  # of each machine
    disk_limit: str = "image"  # how that is kept: see host/limits.py; or none
    base_image: str | None = None  # an imported one instead of our own
    quick_cgroups: bool = True  # whether the kernel may be told to favour moves between cgroups
    image_store: Path | None = None  # shared by several agents; below `state_dir` unless told

    def __post_init__(self) -> None:
        self.registry()  # a name that is none is refused before anything is done

    def registry(self) -> Registry | None:
        if not self.image_registry:
            return None
        return Registry(Place.parse(self.image_registry), self.image_registry_credentials)
