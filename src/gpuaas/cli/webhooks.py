"""`gpuaas webhook`: events sent to an address of yours."""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.confirm import confirm
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session
from gpuaas.cli.units import duration

if TYPE_CHECKING:
    from gpuaas.sdk.types import WebhookView

_Command = TypeVar("_Command", bound=Callable[..., Any])
_types = click.option(
    "--type", "-t", "types", multiple=True, metavar="TYPE",
    help="'allocation.*', 'operation.failed' ...; may be repeated. Default: every event.",
)  # fmt: skip


def _place(command: _Command) -> _Command:
    """Whose webhook: a project's, or an org's."""
    org = click.option("--org", metavar="ORG", help="A webhook of this organisation: events of all its projects.")
    return click.option("--project", "-p", metavar="PROJECT", help="Instead of your default project.")(org(command))


def _whose(session: Session, project: str | None, org: str | None) -> dict[str, str]:
    if project and org:
        raise click.UsageError("Either --project or --org, not both.")
    return {"org": org} if org else {"project": session.named_project(project)}


@click.group(cls=Group)
def webhook() -> None:
    """Events sent to an address of yours: signed, tried again until they arrive, and on record."""


@webhook.command()
@_place
@click.pass_obj
def ls(session: Session, project: str | None, org: str | None) -> None:
    """List webhooks."""
    found = list(session.client().webhooks.list(**_whose(session, project, org)))
    if session.json:
        return output.json_page(found)
    rows = [(w.name, w.url, ",".join(w.types), "yes" if w.enabled else "no", output.age(w.created_at)) for w in found]
    return output.table(("NAME", "URL", "TYPES", "ENABLED", "AGE"), rows, empty="No webhooks.")


@webhook.command()
@click.argument("name")
@click.argument("url")
@_types
@_place
@click.pass_obj
def create(session: Session, name: str, url: str, types: tuple[str, ...], project: str | None, org: str | None) -> None:
    """Send events to URL from now on. Only the secret that signs them goes to stdout, and it is shown this once."""
    made = session.client().webhooks.create(name, url, **_whose(session, project, org), types=types or ("*",))
    if session.json:
        return output.json(made)
    output.note(f"{made.webhook.name} ({made.webhook.id}) is told of {', '.join(made.webhook.types)}. Its secret:")
    return output.echo(output.safe(made.secret))


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@_place
@click.pass_obj
def show(session: Session, name: str, project: str | None, org: str | None) -> None:
    """Show one webhook."""
    _show(session, session.client().webhooks.show(name, **_whose(session, project, org)))


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@click.option("--url", metavar="URL", help="Send there instead.")
@_types
@click.option("--enable/--disable", "enabled", default=None, help="One that is enabled again gets what it missed.")
@_place
@click.pass_obj
def change(
    session: Session, name: str, url: str | None, types: tuple[str, ...], enabled: bool | None, project: str | None,
    org: str | None,
) -> None:  # fmt: skip
    """Change where it points or what it is told of, or stop it for a while."""
    whose = _whose(session, project, org)
    _show(session, session.client().webhooks.change(name, **whose, url=url, types=types or None, enabled=enabled))


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@_place
@click.pass_obj
def remove(session: Session, name: str, yes: bool, project: str | None, org: str | None) -> None:
    """Remove a webhook, with what is on its way and its log."""
    whose = _whose(session, project, org)
    confirm(session, name, [f"What is on its way to {name} is dropped, and its log goes too."], yes=yes)
    session.client().webhooks.remove(name, **whose)
    output.json({"removed": name}) if session.json else output.echo(output.safe(f"Removed {name}."))


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@click.option("--overlap", type=duration, default="24h", show_default=True, help="How long the old one signs too.")
@_place
@click.pass_obj
def rotate(session: Session, name: str, overlap: int, project: str | None, org: str | None) -> None:
    """Make a new secret. Only it goes to stdout, and it is shown this once."""
    made = session.client().webhooks.rotate(name, **_whose(session, project, org), overlap_seconds=overlap)
    if session.json:
        return output.json(made)
    until = output.moment(made.webhook.previous_secret_until)
    output.note(f"Until {until} everything is signed with the old secret too. The new one:")
    return output.echo(output.safe(made.secret))


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@click.option("--state", type=click.Choice(["pending", "delivered", "dead"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many, the newest.")
@_place
@click.pass_obj
def deliveries(
    session: Session, name: str, state: str | None, limit: int, project: str | None, org: str | None
) -> None:
    """What was sent, newest first: how often it was tried, and what the target answered."""
    listed = session.client().webhooks.deliveries(name, **_whose(session, project, org), state=state)
    found = list(islice(listed, limit))
    if session.json:
        return output.json_page(found)
    rows = [
        (d.id, d.project_id, d.seq, d.type, d.state, d.attempts, d.status, output.moment(d.attempted_at), d.error)
        for d in found
    ]
    columns = ("DELIVERY", "PROJECT", "SEQ", "TYPE", "STATE", "TRIES", "STATUS", "LAST TRY", "ERROR")
    return output.table(columns, rows, empty="Nothing was sent yet.")


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@click.argument("delivery", required=False)
@click.option("--first", type=click.IntRange(1), metavar="NUMBER", help="Every event from this number on ...")
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="... up to this one.")
@click.option("--feed", metavar="PROJECT", help="Whose events, for a webhook of an organisation.")
@_place
@click.pass_obj
def replay(
    session: Session, name: str, delivery: str | None, first: int | None, last: int | None, feed: str | None,
    project: str | None, org: str | None,
) -> None:  # fmt: skip
    """Send one delivery again, or a range of events. A receiver knows them by their ids."""
    whose, client = _whose(session, project, org), session.client()
    if (delivery is None) == (first is None) or (first is None) != (last is None):
        raise Invalid("What is to be sent again?", "Name a DELIVERY, or say --first and --last.")
    if delivery is not None:
        count = client.webhooks.replay(name, delivery, **whose)
    else:
        count = client.webhooks.replay_range(name, first or 0, last or 0, **whose, feed=feed)
    output.json({"deliveries": count}) if session.json else output.echo(f"{count} on their way.")


def _show(session: Session, item: "WebhookView") -> None:
    if session.json:
        return output.json(item)
    until = output.moment(item.previous_secret_until)
    return output.fields(
        [
            ("name", item.name),
            ("id", item.id),
            ("url", item.url),
            ("types", ", ".join(item.types)),
            ("enabled", "yes" if item.enabled else "no"),
            ("of", item.project_id or f"every project of {item.org_id}"),
            ("old secret until", until),
            ("made", output.moment(item.created_at)),
        ]
    )
