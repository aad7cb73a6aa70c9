"""`gpuaas runtime verify --catalog` and `--on MACHINE`: images elsewhere than on the machine where this runs."""

from gpuaas.cli import exits, output
from gpuaas.cli.change import finish
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session


def verify_catalog(session: Session, names: tuple[str, ...]) -> int:
    """The server reads them, one after the other."""
    runtimes = session.client().runtimes
    wanted = names or tuple(each.id for each in runtimes.list(everything=True))
    verdicts = [runtimes.verify(name) for name in wanted]
    if session.json:
        output.json_page(verdicts)
    else:
        rows = [(each.name, each.state, each.digest[:12]) for each in verdicts]
        output.table(("RUNTIME", "STATE", "IMAGE"), rows, empty="The catalog is empty: `gpuaas runtime deploy`.")
    bad = [each.name for each in verdicts if each.state != "intact"]
    if bad:
        output.note(output.safe(f"Send it again, where it is built: gpuaas runtime deploy {' '.join(bad)}"))
    return exits.FAILED if bad else exits.OK


def verify_on(session: Session, machine: str, names: tuple[str, ...]) -> int:
    """By repairing: a node that finds a damaged image never leaves it at that. It reads all that the machine has."""
    if len(names) > 1:
        raise Invalid("One NAME at a time.", "Without any, all that the machine has is read.")
    runtimes = session.client().runtimes
    there = names or tuple(each.slug for each in runtimes.on(machine).items if each.current_version is not None)
    if not there:
        raise Invalid(f"{machine} has no managed runtime.", f"`gpuaas runtime apply {machine} NAME` applies one.")
    what = names[0] if names else "its runtimes"
    return finish(session, runtimes.repair(machine, there[0]), False, f"has {what} as it should be")
