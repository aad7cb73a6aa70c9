"""`gpuaas agent`: the agent of a node."""

from pathlib import Path

import click

from gpuaas.cli.command import Group
from gpuaas.cli.installation import default_state_dir


@click.group(cls=Group)
def agent() -> None:
    """The agent of a node."""


@agent.command(cls=click.Command)
@click.option("--server", envvar="GPUAAS_SERVER", show_envvar=True, required=True, metavar="URL")
@click.option("--name", required=True, help="The node's name in the fleet.")
@click.option("--join-token", envvar="GPUAAS_JOIN_TOKEN", show_envvar=True, default="", metavar="TOKEN",
              help="Needed once. The variable keeps it out of the process list.")  # fmt: skip
@click.option("--address", default="127.0.0.1", show_default=True, help="Where users reach this node's ports.")
@click.option("--simulate-gpus", default="8xH100", show_default=True, metavar="NxMODEL")
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY",
              default=lambda: default_state_dir() / "agent", help="Where it keeps key and journal.")  # fmt: skip
def run(server: str, name: str, join_token: str, address: str, simulate_gpus: str, state_dir: Path) -> None:
    """Run the agent in the foreground. It dials out to the server and needs no open port."""
    from gpuaas.kit import log
    from gpuaas.node.config import AgentConfig
    from gpuaas.node.main import run_agent

    log.setup()
    run_agent(AgentConfig(server, state_dir, name, address, simulate_gpus, join_token))
