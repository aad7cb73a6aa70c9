"""The entry point: the table of all commands, and what is done with an error that reaches the top.

A command's module is imported when it is called. `--help`, `--version` and completion import none of them.
"""

import os
import sys
import time
from importlib import import_module
from typing import Any, NamedTuple

import click

from gpuaas import __version__
from gpuaas.cli import exits
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session


class Lazy(NamedTuple):
    target: str  # module:attribute below gpuaas.cli
    help: str


COMMANDS: dict[str, dict[str, Lazy]] = {
    "Machines": {
        "launch": Lazy("launch:launch", "Launch a machine and wait until you can ssh into it."),
        "plan": Lazy("launch:plan", "Say whether a launch would fit right now, and why not."),
        "queue": Lazy("queue:queue", "Launches that wait: their place in the line, and why."),
        "reservation": Lazy("reservations:reservation", "Machines for a time that is to come."),
        "ls": Lazy("allocations:ls", "List machines."),
        "show": Lazy("allocations:show", "Show one machine."),
        "ssh": Lazy("ssh:ssh", "ssh into a machine, directly or through the server."),
        "ssh-config": Lazy("ssh_config:ssh_config", "Your machines as hosts of ssh, scp, rsync and editors."),
        "top": Lazy("top:top", "What your machines use and how they are, live."),
        "health": Lazy("health:health", "How one machine is, and why."),
        "restart": Lazy("change:restart", "Restart a machine: same address, same host key, sessions end."),
        "release": Lazy("change:release", "Give a machine back; what is on its disk is lost."),
        "extend": Lazy("extend:extend", "Let a machine stay longer, or come back after it was stopped."),
        "access": Lazy("access:access", "Who gets into a machine, and who was there."),
        "offer": Lazy("offers:offer", "What can be launched."),
        "runtime": Lazy("runtimes:runtime", "Managed runtimes: build, publish, apply, switch, roll back."),
        "op": Lazy("operations:op", "Long changes and their phases."),
        "events": Lazy("events:events", "What happened in a project."),
    },
    "Cost": {
        "usage": Lazy("usage:usage", "What was used and what it comes to, by machine, user or offer."),
        "quota": Lazy("quotas:quota", "How much a project or an organisation may have."),
        "budget": Lazy("budgets:budget", "What a month may cost, and who is told when it does."),
        "statement": Lazy("statements:statement", "Months that are closed, and whether they are intact."),
        "price": Lazy("prices:price", "Price books: what an hour costs, and since when."),
    },
    "You and your team": {
        "login": Lazy("account:login", "Sign in to a server."),
        "logout": Lazy("account:logout", "Sign out, here and on the server."),
        "whoami": Lazy("account:whoami", "Who you are, and what you can see."),
        "key": Lazy("keys:key", "Your SSH public keys."),
        "token": Lazy("tokens:token", "Your API tokens."),
        "session": Lazy("sessions:session", "Where you are signed in."),
        "project": Lazy("projects:project", "Projects."),
        "service-account": Lazy("service_accounts:service_account", "Accounts for programs."),
        "webhook": Lazy("webhooks:webhook", "Events sent to an address of yours."),
        "invitation": Lazy("invitations:invitation", "Ask people in, and accept."),
        "member": Lazy("members:member", "Who works in a project."),
    },
    "Operators": {
        "node": Lazy("nodes:node", "The fleet: nodes and their slots."),
        "slot": Lazy("slots:slot", "The parts of nodes that are given out."),
        "oidc": Lazy("oidc:oidc", "Single sign-on of an organisation."),
        "break-glass": Lazy("break_glass:break_glass", "Operators at tenants' objects: why, and until when."),
        "user": Lazy("users:user", "Users: make, disable, enable."),
        "admin": Lazy("admin:admin", "Users, organisations, offers, audit."),
    },
    "This machine": {
        "up": Lazy("up:up", "Start everything on this machine, with simulated GPUs."),
        "down": Lazy("down:down", "Stop what `gpuaas up` started; data is kept."),
        "init": Lazy("init:init", "Set up a database that servers will share."),
        "server": Lazy("server:server", "Run the control plane in the foreground."),
        "agent": Lazy("agent:agent", "Run the agent of a node."),
        "completion": Lazy("completion:completion", "Print the completion script of your shell."),
    },
}
HIDDEN = {"ssh-proxy": Lazy("ssh_proxy:ssh_proxy", "For ssh, as its ProxyCommand.")}
_ALL = {name: lazy for section in COMMANDS.values() for name, lazy in section.items()} | HIDDEN


class Root(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_ALL)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ALL:
            return None
        module, _, attribute = _ALL[cmd_name].target.partition(":")
        command: click.Command = getattr(import_module(f"gpuaas.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, lazy.help) for name, lazy in commands.items()], col_max=12)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuaas", message="%(prog)s %(version)s")
def cli() -> None:
    """GPU machines as a service: pick compute, say who gets in, ssh a second later.

    Start with `gpuaas up` on your own machine, or `gpuaas login https://your.server`.
    """


def run(arguments: list[str]) -> int:
    """One command line; returns the exit code."""
    started = time.time()
    session = Session(json="--json" in arguments, correlation_id=_traced())
    try:
        result: Any = cli.main(arguments, prog_name="gpuaas", standalone_mode=False, obj=session)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except Exception as error:
        return exits.report(error, json=session.json)
    finally:
        session.close()
        _trace(session.correlation_id, arguments, started)
    return result if isinstance(result, int) else exits.OK


def _traced() -> str:
    """A correlation id for the whole command, where somebody collects traces."""
    if not any(os.environ.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return ""
    from gpuaas.kit.ids import Ids

    return Ids().new("cr")


def _trace(correlation_id: str, arguments: list[str], started: float) -> None:
    """The command as a span, by its name only: arguments may hold secrets. Servers and agents trace themselves."""
    words = [word for word in arguments if word.replace("-", "").isalpha() and not word.startswith("-")]
    if not correlation_id or not words or words[0] in ("server", "agent"):
        return
    from gpuaas.kit import traces

    traces.setup("gpuaas-cli")
    traces.record(f"gpuaas {words[0]}", correlation_id, started, time.time())
    traces.shutdown()


def main() -> None:
    # httpx brings a command of its own, whose imports would double the start-up time of ours.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
