"""`gpuaas runtime index`: publish runtimes for other sites, signed, in a directory that any mirror can carry."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.runtimes.index.repository import Holders, Repository

F = TypeVar("F", bound=Callable[..., Any])
_file = click.Path(path_type=Path, dir_okay=False)
_directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
_keys = click.option("--key", "keys", multiple=True, type=_file, metavar="FILE", help="Sign with it; repeatable.")
_valid = click.option("--valid-days", type=click.IntRange(1, 3650), metavar="N", help="When what is signed expires.")
_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")


def _roles(command: F) -> F:
    """Who may sign what: public keys, and how many of them it takes."""
    for option in reversed([
        click.option("--root", multiple=True, type=_file, metavar="FILE.pub", help="A key that names all others."),
        click.option("--root-threshold", type=click.IntRange(1), metavar="N", help="How many of them it takes."),
        click.option("--bundles", multiple=True, type=_file, metavar="FILE.pub", help="A key that lists runtimes."),
        click.option("--bundles-threshold", type=click.IntRange(1), metavar="N", help="How many of them it takes."),
        click.option("--freshness", multiple=True, type=_file, metavar="FILE.pub", help="A key that says what is new."),
    ]):  # fmt: skip
        command = option(command)
    return command


@click.group(cls=Group)
def index() -> None:
    """Publish runtimes for other sites: a signed index in a directory."""


@index.command()
@click.argument("file", type=_file)
@click.pass_obj
def key(session: Session, file: Path) -> None:
    """Make a key in FILE, to sign with, and FILE.pub, for others. Keep FILE where no mirror sees it."""
    from gpuaas.runtimes.index import keys

    made = keys.make(file)
    if session.json:
        return output.json({"key": made.keyid, "file": str(file), "public": f"{file}.pub"})
    return output.echo(output.safe(f"{made.keyid} is in {file}, its public half in {file}.pub"))


@index.command()
@_directory
@_roles
@_keys
@_valid
@click.pass_obj
def create(session: Session, /, directory: Path, keys: tuple[Path, ...], valid_days: int | None, **said: Any) -> None:
    """Begin an index in DIRECTORY: who may sign it. It counts when enough of them have.

    Root keys name all others and stay offline; two of three is a good beginning. Keys for bundles list runtimes. The
    one for freshness may lie on a machine that signs every day: alone it can neither add nor change a runtime.
    """
    from gpuaas.runtimes.index import repository

    roles = _holders(said)
    if missing := {"root", "bundles", "freshness"} - set(roles):
        raise Invalid(f"Nobody can sign for {', '.join(sorted(missing))}.", "Give each a FILE.pub, also the same one.")
    made = repository.create(directory, roles, _now(), valid_days)
    _sign(session, made, keys)


@index.command()
@_directory
@_roles
@_keys
@_valid
@click.pass_obj
def rotate(session: Session, /, directory: Path, keys: tuple[Path, ...], valid_days: int | None, **said: Any) -> None:
    """Give roles other keys, or the root a longer life: a new root, signed by the old and the new ones.

    What keys that are no longer named have signed counts no more. After a theft replace the keys for freshness too.
    """
    from gpuaas.runtimes.index import repository

    found = repository.Repository(directory)
    repository.rotate(found, _holders(said), _now(), valid_days)
    _sign(session, found, keys)


@index.command()
@_directory
@_names
@_keys
@_valid
@state_dir_option
@click.pass_obj
def add(
    session: Session, directory: Path, names: tuple[str, ...], keys: tuple[Path, ...], valid_days: int | None,
    state_dir: Path,
) -> None:  # fmt: skip
    """Put runtimes that are built here into the index of DIRECTORY."""
    from gpuaas.runtimes.index import repository
    from gpuaas.runtimes.resolve import Name, resolve
    from gpuaas.runtimes.shelf import Shelf

    shelf, found = Shelf(state_dir / "runtimes"), repository.Repository(directory)
    here = dict.fromkeys(Name(each.bundle, each.version) for each in shelf.all_built())
    chosen = [resolve(name, here) for name in names]
    repository.add(found, shelf, [(each.bundle, each.version) for each in chosen], _now(), valid_days)
    _sign(session, found, keys)


@index.command()
@_directory
@_names
@_keys
@click.pass_obj
def remove(session: Session, directory: Path, names: tuple[str, ...], keys: tuple[Path, ...]) -> None:
    """Take runtimes out of the index of DIRECTORY. Sites that have them keep them."""
    from gpuaas.runtimes.index import repository
    from gpuaas.runtimes.resolve import Name, resolve

    found = repository.Repository(directory)
    listed = [Name(each.bundle, each.version) for each in found.listed()]
    chosen = [resolve(name, listed) for name in names]
    repository.remove(found, [(each.bundle, each.version) for each in chosen], _now())
    _sign(session, found, keys)


@index.command()
@_directory
@_keys
@_valid
@click.pass_obj
def sign(session: Session, directory: Path, keys: tuple[Path, ...], valid_days: int | None) -> None:
    """Sign what waits in DIRECTORY, and publish what has enough signatures.

    With the key for freshness it also says anew that this is the newest: do so every few days, or nobody can use it.
    """
    from gpuaas.runtimes.index import repository

    if not keys:
        raise Invalid("With which keys?", "Name their files: --key FILE.")
    _sign(session, repository.Repository(directory), keys, valid_days)


@index.command()
@_directory
@click.pass_obj
def show(session: Session, directory: Path) -> None:
    """What the index of DIRECTORY lists, who signs it, until when it holds, and what waits for signatures."""
    from tuf.api.metadata import Root, Targets

    from gpuaas.runtimes.index import repository

    found = repository.Repository(directory)
    root, targets, timestamp = found.root(), found.targets(), found.timestamp()
    draft, changed = found.waiting("root", Root), found.waiting("targets", Targets)
    described = root or draft
    if described is None:
        raise Invalid(f"{directory} holds no index.", "Make one with `gpuaas runtime index create`.")
    holders: list[dict[str, Any]] = [
        {"role": name, "threshold": described.signed.roles[tuf].threshold, "keys": described.signed.roles[tuf].keyids,
         "version": document.signed.version if document else None,
         "expires_at": document.signed.expires if document else None}
        for name, tuf, document in
        (("root", "root", root), ("bundles", "targets", targets), ("freshness", "timestamp", timestamp))
    ]  # fmt: skip
    waiting = [name for name, document in (("root", draft), ("bundles", changed)) if document is not None]
    if session.json:
        return output.json({"roles": holders, "waiting": waiting, "items": found.listed()})
    rows = [(each["role"], each["version"], f"{each['threshold']} of {len(each['keys'])}",
             output.moment(each["expires_at"]), ", ".join(id[:12] for id in each["keys"]))
            for each in holders]  # fmt: skip
    output.table(("ROLE", "VERSION", "SIGNED BY", "EXPIRES", "KEYS"), rows)
    output.echo()
    listed = [(each.id, each.architecture, output.size(each.length), each.image[:12]) for each in found.listed()]
    output.table(("RUNTIME", "ARCHITECTURE", "SIZE", "IMAGE"), listed, empty="It lists no runtime yet.")
    if waiting:
        output.note(f"Waits for signatures: {', '.join(waiting)}. `gpuaas runtime index sign {directory} --key FILE`")
    return None


def _holders(said: dict[str, Any]) -> "dict[str, Holders]":
    from gpuaas.runtimes.index import keys
    from gpuaas.runtimes.index.repository import Holders

    found = {}
    for role in ("root", "bundles", "freshness"):
        files, threshold = said[role], said.get(f"{role}_threshold")
        if files:
            found[role] = Holders([keys.public(file) for file in files], threshold or 1)
        elif threshold:
            raise Invalid(f"Which keys are {threshold} of?", f"Name all of them: --{role} FILE.pub.")
    return found


def _sign(session: Session, found: "Repository", files: Sequence[Path], valid_days: int | None = None) -> None:
    from gpuaas.runtimes.index import keys, repository

    done = repository.sign(found, [keys.signer(file) for file in files], _now(), valid_days)
    if session.json:
        return output.json({"published": done.published, "waits": done.waits})
    for each in done.published:
        output.echo(output.safe(f"published: {each}"))
    for each in done.waits:
        output.note(f"waits: {each}")
    return None


def _now() -> datetime:
    return datetime.now(UTC)
