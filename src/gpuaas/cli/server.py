"""`gpuaas server`: the control plane in the foreground."""

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

import click

from gpuaas.cli import units
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.invalid import Invalid
from gpuaas.kit import memory


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a network like 10.0.0.0/8: {error}.") from error


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(1, 65535), default=7070, show_default=True)
@click.option("--database-url", envvar="GPUAAS_DATABASE_URL", show_envvar=True, metavar="URL",
              help="An existing PostgreSQL (>= 15); by default a private one below the state directory.")  # fmt: skip
@click.option("--advertise-url", envvar="GPUAAS_ADVERTISE_URL", show_envvar=True, default="", metavar="URL",
              help="Where agents reach exactly this server, when there are several.")  # fmt: skip
@click.option("--webhook-network", "webhook_networks", multiple=True, type=_network, metavar="CIDR",
              envvar="GPUAAS_WEBHOOK_NETWORKS", show_envvar=True,
              help="Webhooks may point into this network, public or not; may be repeated.")  # fmt: skip
@click.option("--metrics-token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              envvar="GPUAAS_METRICS_TOKEN_FILE", show_envvar=True,
              help="Whoever sends what is in it may read /metrics, and nothing else.")  # fmt: skip
@click.option("--token-rate", type=click.FloatRange(0), default=200.0, show_default=True, envvar="GPUAAS_TOKEN_RATE",
              help="Requests a second with one token; 0: any number.")  # fmt: skip
@click.option("--address-rate", type=click.FloatRange(0), default=20.0, show_default=True,
              envvar="GPUAAS_ADDRESS_RATE", help="The same from one address, without a valid token.")  # fmt: skip
@click.option("--login-rate", type=click.FloatRange(0), default=2.0, show_default=True, envvar="GPUAAS_LOGIN_RATE",
              help="Tries to log in from one address; 0 also lifts the pause after wrong passwords.")  # fmt: skip
@click.option("--node-rate", type=click.FloatRange(0), default=200.0, show_default=True, envvar="GPUAAS_NODE_RATE",
              help="Links and dial-backs of nodes from one address.")  # fmt: skip
@click.option("--public-url", envvar="GPUAAS_PUBLIC_URL", show_envvar=True, default="", metavar="URL",
              help="Where browsers reach this server; for single sign-on.")  # fmt: skip
@click.option("--oidc-issuer", envvar="GPUAAS_OIDC_ISSUER", show_envvar=True, default="", metavar="URL",
              help="The identity provider for single sign-on.")  # fmt: skip
@click.option("--oidc-client-id", envvar="GPUAAS_OIDC_CLIENT_ID", show_envvar=True, default="", metavar="ID")
@click.option("--oidc-client-secret-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              envvar="GPUAAS_OIDC_CLIENT_SECRET_FILE", show_envvar=True,
              help="Left out by a public client.")  # fmt: skip
@click.option("--oidc-scopes", envvar="GPUAAS_OIDC_SCOPES", default="openid email profile", show_default=True)
@click.option("--oidc-groups-claim", envvar="GPUAAS_OIDC_GROUPS_CLAIM", default="groups", show_default=True)
@click.option("--preemption-grace", type=units.duration, default="5m", show_default=True, metavar="TIME",
              envvar="GPUAAS_PREEMPTION_GRACE", show_envvar=True,
              help="How long a preemptible machine has that is told to give way.")  # fmt: skip
@click.option("--runtime-images", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
              envvar="GPUAAS_RUNTIME_IMAGES", show_envvar=True,
              help="Images of runtimes, shared by all servers; by default below the state directory.")  # fmt: skip
@click.option("--secrets-key-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              envvar="GPUAAS_SECRETS_KEY_FILE", show_envvar=True,
              help="Seals secrets of webhooks; the same for all servers. An embedded database has one.")  # fmt: skip
@state_dir_option
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True
)
def server(
    host: str, port: int, database_url: str | None, advertise_url: str, webhook_networks: tuple[str, ...],
    metrics_token_file: Path | None, token_rate: float, address_rate: float, login_rate: float, node_rate: float,
    public_url: str, oidc_issuer: str, oidc_client_id: str, oidc_client_secret_file: Path | None, oidc_scopes: str,
    oidc_groups_claim: str, preemption_grace: int, runtime_images: Path | None, secrets_key_file: Path | None,
    state_dir: Path, log_level: str,
) -> None:  # fmt: skip
    """Run the control plane: HTTP API, node links, sweeps. Any number of them can share one PostgreSQL."""
    from gpuaas.control.config import Oidc, Rates, ServerConfig

    with memory.starting():
        from gpuaas.control.main import run_server

    token = _token(metrics_token_file) if metrics_token_file else ""
    rates = Rates(token_rate, address_rate, login_rate, node_rate)
    oidc = None
    if oidc_issuer:
        if not (oidc_client_id and public_url):
            raise Invalid("Single sign-on needs --oidc-client-id and --public-url too.")
        for url in (oidc_issuer, public_url):
            _checked_url(url)
        secret = _token(oidc_client_secret_file) if oidc_client_secret_file else ""
        public = public_url.rstrip("/")
        oidc = Oidc(oidc_issuer, oidc_client_id, public, secret, oidc_scopes, oidc_groups_claim)
    run_server(
        ServerConfig(
            database_url,
            host,
            port,
            state_dir,
            log_level,
            advertise_url,
            webhook_networks,
            token,
            rates,
            oidc,
            preemption_grace,
            runtime_images,
            _key(secrets_key_file) if secrets_key_file else None,
        )
    )


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read: {error}.") from error
    if len(token) < 16:
        raise Invalid(f"{file} holds less than 16 characters.", "Make one: `openssl rand -hex 32`.")
    return token


def _key(file: Path) -> bytes:
    from gpuaas.kit.seal import key_in

    try:
        return key_in(file)
    except (OSError, ValueError) as error:
        raise Invalid(f"The key for secrets cannot be read: {error}.", "Make one: `openssl rand -hex 32`.") from error


def _checked_url(url: str) -> None:
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise Invalid(f"{url} is not encrypted.", "Single sign-on needs https, except on this machine.")
