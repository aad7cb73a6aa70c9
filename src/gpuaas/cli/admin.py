"""`gpuaas admin`: users, organisations, offers, audit."""

from collections import deque

import click

from gpuaas.cli import exits, output, units
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session
from gpuaas.cli.users import user


@click.group(cls=Group)
def admin() -> None:
    """For administrators: users, organisations, offers, audit."""


admin.add_command(user)


@admin.group()
def org() -> None:
    """Organisations."""


@org.command("create")
@click.argument("slug")
@click.option("--admin", "first", required=True, metavar="USER", help="Becomes its tenant_admin: an address or an id.")
@click.option("--name", metavar="TEXT", help="For people; the slug when left out.")
@click.pass_obj
def create_org(session: Session, slug: str, first: str, name: str | None) -> None:
    """Make an organisation."""
    made = session.client().orgs.create(slug, name or slug, admin=first)
    if session.json:
        output.json(made)
    else:
        output.echo(output.safe(f"Made {made.slug} ({made.id})."))


@admin.group()
def offer() -> None:
    """Offers."""


@offer.command("create")
@click.argument("slug")
@click.option("--name", metavar="TEXT", help="For people; the slug when left out.")
@click.option("--gpu-model", default="", metavar="MODEL", help="As nodes report it, like H100.")
@click.option("--gpus", type=click.IntRange(0, 64), required=True)
@click.option("--cpus", type=click.IntRange(1, 4096), required=True)
@click.option("--memory", type=units.memory, required=True, metavar="SIZE", help="Like 64GiB.")
@click.option("--isolation", type=click.Choice(["any", "dedicated_node"]), default="any", show_default=True)
@click.option("--realisation", "realisations", multiple=True, type=click.Choice(["gpu_slice", "baremetal"]),
              default=("gpu_slice",), show_default=True, help="May be repeated.")  # fmt: skip
@click.option("--price", type=click.FloatRange(0, 1_000_000), default=0.0, help="Per hour.")
@click.pass_obj
def create_offer(
    session: Session, slug: str, name: str | None, gpu_model: str, gpus: int, cpus: int, memory: int, isolation: str,
    realisations: tuple[str, ...], price: float,
) -> None:  # fmt: skip
    """Put something on offer."""
    from gpuaas.sdk.types import NewOffer

    wanted = NewOffer(
        slug, name or slug, gpu_model, gpus, cpus, memory, isolation, [*realisations], round(price * 1_000_000)
    )
    made = session.client().offers.create(wanted)
    if session.json:
        output.json(made)
    else:
        output.echo(output.safe(f"Made {made.slug} ({made.id})."))


@admin.command("doctor")
@click.pass_obj
def doctor(session: Session) -> int:
    """Say what is wrong with this installation and what to do about it. Exit code 1: something has failed."""
    found = session.client().doctor()
    if session.json:
        output.json(found)
        return exits.OK if found.ok else exits.FAILED
    marks = {"ok": "ok  ", "warning": "warn", "failure": "FAIL"}
    width = max(len(one.name) for one in found.findings)
    for one in found.findings:
        output.echo(output.safe(f"{marks.get(one.level, one.level)}  {one.name:<{width}}  {one.value}".rstrip()))
        for said in filter(None, (one.problem, one.remedy)):
            output.echo(output.safe(f"      {' ' * width}  {said}"))
    warnings = sum(one.level == "warning" for one in found.findings)
    verdict = "well" if found.ok else "not well: see FAIL above"
    output.echo(f"This installation is {verdict}." + (f" {warnings} warnings." if warnings else ""))
    return exits.OK if found.ok else exits.FAILED


@admin.group()
def audit() -> None:
    """Who changed what: a hash chain per organisation, and one for the platform."""


_org = click.option("--org", metavar="ORG", help="May be left out by a member of one organisation.")
_platform = click.option("--platform", is_flag=True, help="The platform's own chain.")


@audit.command("ls")
@_org
@_platform
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many, the newest.")
@click.pass_obj
def list_audit(session: Session, org: str | None, platform: bool, limit: int) -> None:
    """List audit entries, oldest first."""
    _either(org, platform)
    client = session.client()
    found = deque(client.audit.list_platform() if platform else client.audit.list(org), maxlen=limit)
    if session.json:
        return output.json_page(found)
    rows = [
        (item.seq, output.moment(item.at), item.actor, item.action, item.object_id, item.data.get("break_glass"))
        for item in found
    ]
    return output.table(("SEQ", "AT", "ACTOR", "ACTION", "OBJECT", "BREAK-GLASS"), rows, empty="No entries.")


@audit.command("verify")
@_org
@_platform
@click.pass_obj
def verify_audit(session: Session, org: str | None, platform: bool) -> int:
    """Walk the chain. Exit code 1: an entry is missing or was altered."""
    _either(org, platform)
    client = session.client()
    found = client.audit.verify_platform() if platform else client.audit.verify(org)
    if session.json:
        output.json(found)
    else:
        verdict = "intact" if found.intact else f"NOT intact: {found.problem}"
        output.echo(output.safe(f"{found.org_id}: {found.entries} entries, {verdict}"))
    return exits.OK if found.intact else exits.FAILED


def _either(org: str | None, platform: bool) -> None:
    if org and platform:
        raise click.UsageError("Either --org or --platform, not both.")
