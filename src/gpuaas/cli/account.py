"""`gpuaas login`, `logout`, `whoami`."""

import os
import sys
from urllib.parse import urlsplit

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command
from gpuaas.cli.config import Account
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session


@click.command(cls=Command)
@click.argument("server", required=False)
@click.option("--email", metavar="ADDRESS", help="Asked for when left out.")
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin instead of asking.")
@click.option("--token-stdin", is_flag=True, help="Sign in with an API token read from stdin, without a password.")
@click.option("--oidc", is_flag=True, help="By single sign-on, in your browser.")
@click.option("--no-browser", is_flag=True, help="With --oidc: in a browser elsewhere; you paste a code.")
@click.pass_obj
def login(
    session: Session, server: str | None, email: str | None, password_stdin: bool, token_stdin: bool, oidc: bool,
    no_browser: bool,
) -> None:  # fmt: skip
    """Sign in to a server, and use it from now on."""
    if sum((password_stdin, token_stdin, oidc)) > 1 or (no_browser and not oidc):
        raise click.UsageError("Either a password, or a token, or --oidc (with --no-browser, if you like).")
    client = session.connect(server or session.server, None)
    _warn_in_the_clear(client.server)
    if token_stdin:
        secret = sys.stdin.readline().strip()
        if not secret:
            raise Invalid("There is no token on stdin.")
    elif oidc:
        from gpuaas.cli.oidc_login import log_in

        secret = log_in(client, browser=not no_browser)
    else:
        email = email or click.prompt("Email", err=True)
        password = sys.stdin.readline().rstrip("\r\n") if password_stdin else click.prompt(
            "Password", hide_input=True, err=True
        )  # fmt: skip
        secret = client.login(email, password).secret
    return signed_in(session, client.server, secret)


def signed_in(session: Session, server: str, secret: str) -> None:
    """Remembers who one is there, and uses that server from now on."""
    me = session.connect(server, secret).whoami()
    project = session.config.account(server).project
    if project not in {name for item in me.projects for name in (item.id, item.slug)}:
        project = me.projects[0].slug if len(me.projects) == 1 else ""
    account = Account(secret, me.user.email, project)
    session.save(session.config.with_account(server, account, use=True))
    if session.json:
        return output.json(me)
    output.echo(output.safe(f"Signed in to {server} as {me.user.email}."))
    if os.environ.get("GPUAAS_TOKEN"):
        output.note("GPUAAS_TOKEN is set and wins over this login.")
    if not project and me.projects:
        output.note("You see several projects: choose one with `gpuaas project use`.")
    return None


def _warn_in_the_clear(server: str) -> None:
    parts = urlsplit(server)
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        output.note(f"Warning: {server} is not encrypted; everybody on the way can read your password. Use https.")


@click.command(cls=Command)
@click.pass_obj
def logout(session: Session) -> None:
    """Sign out: the token is revoked on the server and forgotten here."""
    from gpuaas.sdk import GpuaasError

    server, account = session.server, session.config.account(session.server)
    revoked = False
    if account.token:
        try:
            client = session.connect(server, account.token)
            client.tokens.revoke(client.whoami().token_id)
            revoked = True
        except GpuaasError as error:
            output.note(f"The server could not be told, so the token lives until it expires: {error}")
        session.save(session.config.without(server))
    if session.json:
        return output.json({"server": server, "revoked": revoked})
    output.echo(output.safe(f"Signed out of {server}." if account.token else f"You were not signed in to {server}."))
    if os.environ.get("GPUAAS_TOKEN"):
        output.note("GPUAAS_TOKEN is still set.")
    return None


@click.command(cls=Command)
@click.pass_obj
def whoami(session: Session) -> None:
    """Who you are, and what you can see."""
    me = session.client().whoami()
    if session.json:
        return output.json(me)
    output.fields(
        [
            ("user" if me.user.kind == "person" else "service account", f"{me.user.email} ({me.user.name})"),
            ("id", me.user.id),
            ("server", session.server),
            ("platform role", me.user.platform_role),
            ("token covers", ", ".join(me.scopes)),
            ("organisations", ", ".join(f"{org.slug} ({org.role})" for org in me.orgs)),
            ("projects", ", ".join(f"{project.slug} ({project.role})" for project in me.projects)),
            ("default project", session.project(None)),
        ]
    )
    return None
