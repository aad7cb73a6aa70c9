"""What a server is started with."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ServerConfig:
    database_url: str | None  # None: the embedded PostgreSQL below state_dir
    host: str
    port: int
    state_dir: Path
    log_level: str = "INFO"
    advertise_url: str = ""  # of this replica, for agents; empty: the URL that they use already
    webhook_networks: tuple[str, ...] = ()  # not public, but webhooks may point there
    metrics_token: str = field(default="", repr=False)  # opens /metrics, and nothing else
