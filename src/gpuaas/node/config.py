"""What an agent has to be told to start."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AgentConfig:
    server_url: str  # http(s)://host:port
    state_dir: Path
    name: str
    address: str = "127.0.0.1"  # where users reach the ports that this node publishes
    fake_gpus: str = "8xH100"  # simulated machine; see node/host/fake_gpus.py
    join_token: str = ""  # needed once
    sample_seconds: float = 10.0  # between two looks at what machines use

    @property
    def link_url(self) -> str:
        """The server's WebSocket base: ws for http, wss for https."""
        scheme, _, rest = self.server_url.rstrip("/").partition("://")
        schemes = {"http": "ws", "https": "wss"}
        if scheme not in schemes or not rest:
            raise ValueError(f"{self.server_url!r} is not the address of a server, like https://gpuaas.example.org")
        return f"{schemes[scheme]}://{rest}"
