"""`gpuaas init`: the first set-up of a database that servers will share."""

import secrets
import sys

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command
from gpuaas.cli.session import Session


@click.command(cls=Command)
@click.option("--database-url", envvar="GPUAAS_DATABASE_URL", show_envvar=True, required=True, metavar="URL",
              help="A PostgreSQL (>= 15). The variable keeps its password out of the process list.")  # fmt: skip
@click.option("--email", required=True, help="Of the first administrator.")
@click.option("--password-stdin", is_flag=True, help="Read their password from stdin; otherwise one is made.")
@click.option("--org", default="main", show_default=True, help="The first organisation.")
@click.option("--project", default="default", show_default=True, help="The first project.")
@click.pass_obj
def init(session: Session, database_url: str, email: str, password_stdin: bool, org: str, project: str) -> None:
    """Make the tables, the first administrator, organisation, project and offers. Once: later runs change nothing."""
    from gpuaas.control.bootstrap import bootstrap

    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else secrets.token_urlsafe(15)
    made = bootstrap(database_url, email=email, password=password, org=org, project=project)
    shown = {} if password_stdin or not made.created else {"password": password}
    if session.json:
        return output.json({"created": made.created, "email": email, **shown})
    if not made.created:
        return output.note(f"{email} is there already; nothing was changed.")
    output.note(f"{email} is the first administrator. Start a server, then `gpuaas login`." + ("" if password_stdin else
                " The password, shown this once:"))  # fmt: skip
    return None if password_stdin else output.echo(output.safe(password))
