"""`gpuaas agent`: the agent of a node."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuaas.cli import agent_join, output
from gpuaas.cli.agent_join import registry_options
from gpuaas.cli.command import Command, Group
from gpuaas.cli.installation import default_state_dir
from gpuaas.cli.session import Session

_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group(cls=Group)
def agent() -> None:
    """The agent of a node."""


agent.add_command(agent_join.join)


def _node_options(command: _Command) -> _Command:
    """What says which machine this is, and how it is told apart from a second agent on it."""
    options = [
        click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
                     default=lambda: default_state_dir() / "agent", help="Where it keeps everything."),
        click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
                     default=Path("/run/gpuaas"), show_default=True, help="What need not survive a reboot."),
        click.option("--etc-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
                     help="Where it says which runtimes each machine has.  "
                     "[default: /etc/gpuaas; with a --run-dir of its own, the state directory]"),
        click.option("--name", default=socket.gethostname, help="The node's name in the fleet."),
        click.option("--simulate-gpus", default="", metavar="NxMODEL",
                     help="Such as 8xH100, or 2xH100:7x1g.10gb for MIG.  [default: real ones]"),
        click.option("--prefix", default="gpuaas", show_default=True, help="Of cgroups and the nftables table."),
        click.option("--interfaces", default="gv", show_default=True, help="What network interfaces begin with."),
        click.option("--pool", default="198.18.0.0/15", show_default=True, help="Addresses of machines, behind NAT."),
        click.option("--image-store", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
                     help="Base images, shared by several agents.  [default: in the state directory]"),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@agent.command(cls=click.Command)
@click.option("--server", envvar="GPUAAS_SERVER", show_envvar=True, required=True, metavar="URL[,URL...]",
              help="Of several replicas any; when one does not answer, the next is asked.")  # fmt: skip
@click.option("--join-token", envvar="GPUAAS_JOIN_TOKEN", show_envvar=True, default="", metavar="TOKEN",
              help="Needed once. The variable keeps it out of the process list.")  # fmt: skip
@click.option("--address", default="127.0.0.1", show_default=True, help="Where users reach this node's ports.")
@click.option("--host", type=click.Choice(["linux", "modelled"]), default="linux", show_default=True,
              help="modelled: machines are only data.")  # fmt: skip
@click.option("--deny-network", "denied", multiple=True, metavar="CIDR", help="Machines never reach it.")
@click.option("--hide-servers/--no-hide-servers", default=True, show_default=True,
              help="Machines do not reach the servers that this agent dials, on their ports.")  # fmt: skip
@click.option("--base-image", metavar="VERSION", help="An imported one.  [default: our own Debian, built if need be]")
@click.option("--disk-mib", type=click.IntRange(256), default=64 * 1024, show_default=True, help="Of each machine.")
@click.option("--disk-limit", type=click.Choice(["image", "none"]), default="image", show_default=True,
              help="How that is kept. none: one machine can fill the disk for all.")  # fmt: skip
@click.option("--fetch-mib-per-second", type=click.FloatRange(0), default=0, metavar="NUMBER",
              help="Of images of runtimes, each.  [default: as fast as they come]")  # fmt: skip
@registry_options
@click.option("--clear-mig", default="", metavar="COMMAND",
              help="Clears a MIG instance ({uuid}, {index} and {bus} are filled in) before its next user.")  # fmt: skip
@click.option("--quick-cgroups/--no-quick-cgroups", default=True, show_default=True,
              help="Have the kernel move processes between cgroups in less than 1 ms instead of 10.")  # fmt: skip
@_node_options
def run(**options: Any) -> None:
    """Run the agent in the foreground. It dials out to the server and needs no open port."""
    from gpuaas.kit import log
    from gpuaas.node.config import AgentConfig
    from gpuaas.node.main import run_agent

    log.setup()
    run_agent(AgentConfig(server_url=options.pop("server"), **options))


@agent.command(cls=Command)
@click.option("--purge", is_flag=True, help="Leave nothing outside of the state directory, which you delete next.")
@_node_options
@click.pass_obj
def clear(session: Session, /, purge: bool, **options: Any) -> None:
    """Stop every machine of this node and take its mounts, networks and cgroups away. Data stays."""
    from gpuaas.node.config import AgentConfig
    from gpuaas.node.main import clear_host

    clear_host(AgentConfig(server_url="http://localhost", **options), purge=purge)
    output.json({"cleared": True}) if session.json else output.echo("This node is clear.")


@agent.group(cls=Group)
def image() -> None:
    """Base images of this node: what the file systems of its machines begin with."""


@image.command("ls")
@_node_options
@click.pass_obj
def list_images(session: Session, /, **options: Any) -> None:
    """List the images that this node has."""
    from gpuaas.node import main
    from gpuaas.node.config import AgentConfig

    found = main.list_images(AgentConfig(server_url="http://localhost", **options))
    output.json({"items": found}) if session.json else output.table(
        ("IMAGE",), [(each,) for each in found], empty="None."
    )


@image.command("import")
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--as", "image_name", required=True, metavar="NAME", help="What its version begins with.")
@_node_options
@click.pass_obj
def import_image(session: Session, /, archive: Path, image_name: str, **options: Any) -> None:
    """Take in a root file system: a tarball, an OCI archive or a `docker save`. It needs sshd and sudo inside."""
    from gpuaas.node import main
    from gpuaas.node.config import AgentConfig

    version = main.import_image(AgentConfig(server_url="http://localhost", **options), archive, image_name)
    said = f"{version} is here. Use it: gpuaas agent run --base-image {version}"
    output.json({"version": version}) if session.json else output.echo(output.safe(said))


@agent.command(cls=Command)
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
              default=lambda: default_state_dir() / "agent")  # fmt: skip
@click.option("--simulate-gpus", default="", metavar="NxMODEL", help="Do not look for real ones.")
@click.option("--clear-mig", default="", metavar="COMMAND", help="What `agent run` is told.")
@click.option("--disk-limit", type=click.Choice(["image", "none"]), default="image", help="What `agent run` is told.")
@click.pass_obj
def doctor(session: Session, state_dir: Path, simulate_gpus: str, clear_mig: str, disk_limit: str) -> None:
    """Say what this machine offers, what is missing, and how to get it. Exits with 1 if it cannot take machines."""
    from gpuaas.node.main import examine

    findings, ready, text = examine(state_dir, simulate_gpus, clear_mig, disk_limit)
    output.json(findings) if session.json else output.echo(text)
    if not ready:
        raise SystemExit(1)
