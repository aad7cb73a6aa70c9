"""`gpuaas ssh-config`: your machines as hosts of ssh, so that ssh, scp, rsync, git and editors know them by name."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuaas.cli import known_hosts, output, reach, ssh_include
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import AllocationView

DOMAIN = "gpuaas"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_THERE = frozenset({"active", "restarting", "unreachable"})
_INTRO = "# Written by `gpuaas ssh-config`, which replaces it as a whole."


@dataclass(frozen=True)
class Host:
    names: list[str]
    options: dict[str, str]

    def lines(self) -> list[str]:
        return ["Host " + " ".join(self.names), *(f"    {key} {value}" for key, value in self.options.items()), ""]


@click.command(cls=Command)
@click.option("--write", is_flag=True, help="Into ~/.ssh/gpuaas.config, included by ~/.ssh/config.")
@click.option("--remove", is_flag=True, help="Take both away again.")
@click.option("--via-server", is_flag=True, help="Through the server, also where a node can be reached directly.")
@project_option
@click.pass_obj
def ssh_config(session: Session, write: bool, remove: bool, via_server: bool, project: str | None) -> None:
    """Print your machines as hosts of ssh: NAME.PROJECT.gpuaas, and NAME for your own.

    With --write, plain `ssh NAME`, scp, rsync and editors work. Run it again when you have new machines.
    """
    if write and remove:
        raise click.UsageError("Either --write or --remove, not both.")
    if remove:
        return _removed(session)
    hosts = _hosts(session, project, via_server)
    text = "\n".join([_INTRO, "", *(line for host in hosts for line in host.lines())])
    if write:
        ssh_include.write(text)
    if session.json:
        return output.json_page({"names": host.names, "options": host.options} for host in hosts)
    if not write:
        return output.echo(text)
    for host in hosts:
        output.echo(f"ssh {host.names[-1]}")
    return output.note(f"{len(hosts)} machines in {ssh_include.own_file()}.")


def _removed(session: Session) -> None:
    was_there = ssh_include.remove()
    if session.json:
        output.json({"removed": was_there})
    else:
        output.note("Removed." if was_there else "There was nothing to remove.")


def _hosts(session: Session, project: str | None, via_server: bool) -> list[Host]:
    client = session.client()
    seen = [item for item in client.allocations.list(project) if item.state in _THERE and item.host_key]
    slugs = {item.id: item.slug for item in client.projects.list()}
    me = client.whoami().user.id
    known = known_hosts.remember(session.server, seen, only=project is None)
    longs = {item.id: f"{item.name}.{slugs.get(item.project_id, item.project_id)}.{DOMAIN}" for item in seen}
    # Only your own machines get a short name: a colleague must not be able to take over `ssh prod` by a machine.
    shorts = {item.id: item.name for item in seen if item.owner_id == me}
    hosts = []
    for item in seen:
        names = [f"{item.id}.{DOMAIN}", *_plain_and_unique(longs, item.id), *_plain_and_unique(shorts, item.id)]
        hosts.append(Host(names, _options(session.server, item, known, via_server)))
    return hosts


def _plain_and_unique(names: dict[str, str], id: str) -> list[str]:
    name = names.get(id, "")
    plain = bool(name) and all(_NAME.fullmatch(part) for part in name.split("."))
    return [name] if plain and Counter(names.values())[name] == 1 else []


def _options(server: str, item: "AllocationView", known: Path, via_server: bool) -> dict[str, str]:
    address = None if via_server else reach.address(item)
    options = reach.options(server, item, known, direct=address is not None)
    return {"HostName": address or item.id, **options}
