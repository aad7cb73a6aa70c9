"""`gpuaas agent join URL TOKEN`: from a bare host to a node, in one line."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuaas.cli import exits, output
from gpuaas.cli.command import Command
from gpuaas.cli.daemons import write_private
from gpuaas.cli.installation import default_state_dir
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

UNIT = "gpuaas-agent.service"
SYSTEMD = Path("/etc/systemd/system")
SETTINGS = Path("/etc/gpuaas/agent.env")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def registry_options(command: _Command) -> _Command:
    """Where images of runtimes come from, before the server is asked."""
    file = click.option("--image-registry-credentials", envvar="GPUAAS_IMAGE_REGISTRY_CREDENTIALS", show_envvar=True,
                        type=click.Path(path_type=Path, dir_okay=False, resolve_path=True), metavar="FILE",
                        help="For the registry; like Docker's config.json.")  # fmt: skip
    place = click.option("--image-registry", envvar="GPUAAS_IMAGE_REGISTRY", show_envvar=True, default="",
                         metavar="REPOSITORY",
                         help="Ask for images of runtimes there first, such as registry.example/team.")  # fmt: skip
    return place(file(command))


@click.command(cls=Command)
@click.argument("server", metavar="URL[,URL...]")
@click.argument("join_token", metavar="TOKEN", envvar="GPUAAS_JOIN_TOKEN")
@click.option("--name", default=socket.gethostname, help="The node's name in the fleet.  [default: the host's]")
@click.option("--address", help="Where users reach this node's ports.  [default: the one that reaches the server]")
@click.option("--simulate-gpus", default="", metavar="NxMODEL", help="Such as 8xH100.  [default: real ones]")
@click.option("--clear-mig", default="", metavar="COMMAND",
              help="Clears a MIG instance ({uuid}, {index} and {bus} are filled in) before its next user.")  # fmt: skip
@click.option("--disk-limit", type=click.Choice(["image", "none"]), default="image", show_default=True,
              help="How what a machine may write is limited. none: one can fill the disk for all.")  # fmt: skip
@registry_options
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
              default=lambda: default_state_dir() / "agent", help="Where it keeps everything.")  # fmt: skip
@click.option("--host", type=click.Choice(["linux", "modelled"]), default="linux", show_default=True,
              help="modelled: machines are only data, and nothing is checked.")  # fmt: skip
@click.option("--service/--no-service", default=None,
              help="Install and start a systemd unit.  [default: as root, where systemd runs]")  # fmt: skip
@click.pass_obj
def join(session: Session, /, server: str, join_token: str, service: bool | None, **options: Any) -> int:
    """Check what this host lacks, join the fleet at URL with a one-time TOKEN, and run the agent from now on.

    `gpuaas node join-token` makes the TOKEN; `-` reads it from stdin. Nothing is changed on a host that cannot be a
    node. Run it again at any time.
    """
    from gpuaas.node.config import AgentConfig
    from gpuaas.node.main import examine, join_fleet

    token = sys.stdin.readline().strip() if join_token == "-" else join_token  # noqa: S105
    if options["host"] == "linux":
        asked = (options[name] for name in ("state_dir", "simulate_gpus", "clear_mig", "disk_limit"))
        _, ready, said = examine(*asked)
        output.echo(said, err=True)
        if not ready:
            raise Invalid("This host cannot be a node yet; nothing was changed.", "Get what is missing, then join.")
    address = options.pop("address") or _address_towards(server)
    node_id = join_fleet(AgentConfig(server_url=server, join_token=token, address=address, **options))
    command = ["agent", "run", "--server", server, *_options(address, options)]
    installed = _install(server, command[4:]) if _wanted(service) else False
    if session.json:
        output.json({"node_id": node_id, "name": options["name"], "address": address, "service": installed})
        return exits.OK
    output.echo(output.safe(f"{options['name']} ({node_id}) has joined {server}; users reach it at {address}."))
    if installed:
        output.echo(f"Its agent runs as {UNIT}: `journalctl -u {UNIT}`, settings in {SETTINGS}.")
    else:
        output.echo(f"Start its agent: gpuaas {shlex.join(command)}")
    return exits.OK


def _options(address: str, options: dict[str, Any]) -> list[str]:
    """Only what differs from what the agent would do anyway."""
    found = ["--name", options["name"], "--address", address, "--state-dir", str(options["state_dir"])]
    for name in ("simulate_gpus", "clear_mig", "image_registry", "image_registry_credentials"):
        found += [f"--{name.replace('_', '-')}", str(options[name])] if options[name] else []
    found += ["--disk-limit", options["disk_limit"]] if options["disk_limit"] != "image" else []
    return found + (["--host", options["host"]] if options["host"] != "linux" else [])


def _wanted(service: bool | None) -> bool:
    running = Path("/run/systemd/system").is_dir() and os.geteuid() == 0
    if service and not running:
        raise Invalid("There is no systemd that could run a service for you.", "Run it as root, or with --no-service.")
    return running if service is None else service


def _install(server: str, options: list[str]) -> bool:
    program = shutil.which("gpuaas") or sys.argv[0]
    unit = _unit().read_text().replace("/usr/local/bin/gpuaas", str(Path(program).resolve()))
    SETTINGS.parent.mkdir(mode=0o755, exist_ok=True)
    write_private(SETTINGS, f"GPUAAS_SERVER={server}\nGPUAAS_AGENT_OPTIONS={shlex.join(options)}")
    (SYSTEMD / UNIT).write_text(unit)
    for arguments in (["daemon-reload"], ["enable", "--now", UNIT], ["restart", UNIT]):
        done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stderr.strip()
            raise Invalid(f"systemctl {' '.join(arguments)} failed: {said}", "It has joined: start the agent by hand.")
    return True


def _unit() -> Path:
    """In an installed package, or in a checkout."""
    here = Path(__file__).parent
    for directory in (here / "systemd", here.parents[2] / "deploy" / "systemd"):
        if (directory / UNIT).exists():
            return directory / UNIT
    raise Invalid(f"{UNIT} is not in this installation.", "Install gpuaas again, or use --no-service.")


def _address_towards(server: str) -> str:
    """The address of this host from which it would talk to the server; nothing is sent."""
    from urllib.parse import urlsplit

    parts = urlsplit(server.partition(",")[0])
    try:
        family, kind, _, _, there = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise Invalid(f"{server} cannot be found: {error}.", "Check the address, or say --address.") from error
