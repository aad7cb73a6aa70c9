"""What a server is started with."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Rates:
    """Requests a second, for one caller at one replica; ten seconds' worth may come at once. 0: any number."""

    token: float = 200.0  # with one valid token
    address: float = 20.0  # from one address, without a valid token
    login: float = 2.0  # tries to log in or to sign up from one address
    node: float = 200.0  # links, joins and dial-backs of nodes from one address


RATES = Rates()
NO_RATES = Rates(0, 0, 0, 0)


@dataclass(frozen=True)
class Oidc:
    """The one identity provider that this installation trusts, and how it knows us."""

    issuer: str
    client_id: str
    public_url: str  # where browsers reach this server; the provider sends them back to {public_url}/oidc/callback
    client_secret: str = field(default="", repr=False)  # empty: a public client
    scopes: str = "openid email profile"
    groups_claim: str = "groups"


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
    rates: Rates = Rates()
    oidc: Oidc | None = None
    preemption_grace_seconds: int = 300  # of a machine that is told to give way
    runtime_images_dir: Path | None = None  # one for all replicas; None: below state_dir
    secrets_key: bytes | None = field(default=None, repr=False)  # seals what the database keeps for us to read again
