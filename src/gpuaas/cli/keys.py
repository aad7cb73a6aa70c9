"""`gpuaas key`: your SSH public keys."""

import subprocess
import sys
from pathlib import Path

import click

from gpuaas.cli import output
from gpuaas.cli.command import Group
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

LIMIT_BYTES = 16 * 1024


@click.group(cls=Group)
def key() -> None:
    """Your SSH public keys: they open the machines that you launch."""


@key.command()
@click.pass_obj
def ls(session: Session) -> None:
    """List your keys."""
    found = list(session.client().keys.list())
    if session.json:
        return output.json_page(found)
    rows = [(item.name, item.type, item.fingerprint, output.age(item.created_at)) for item in found]
    return output.table(("NAME", "TYPE", "FINGERPRINT", "AGE"), rows, empty="No keys. `gpuaas key add NAME` adds one.")


@key.command()
@click.argument("name")
@click.argument("path", required=False)
@click.pass_obj
def add(session: Session, name: str, path: str | None) -> None:
    """Add the public key in the file PATH (`-` for stdin); by default the first of ~/.ssh/id_*.pub."""
    if path == "-":
        text = sys.stdin.read(LIMIT_BYTES + 1)
    else:
        text = read_key(Path(path).expanduser() if path else default_key())
    added = session.client().keys.add(name, public_line(text))
    if session.json:
        output.json(added)
    else:
        output.echo(output.safe(f"Added {added.name}: {added.fingerprint}"))


def default_key() -> Path:
    if found := own_keys():
        return found[0]
    raise Invalid("There is no ~/.ssh/id_*.pub.", "Make a key with `ssh-keygen -t ed25519`, or name the file.")


def own_keys() -> list[Path]:
    """The user's public keys, the modern one first."""
    directory = Path("~/.ssh").expanduser()
    return sorted(directory.glob("id_*.pub"), key=lambda file: (file.name != "id_ed25519.pub", file.name))


def make_own() -> Path:
    """A key for somebody who has none yet. Answers its public half."""
    file = Path("~/.ssh/id_ed25519").expanduser()
    file.parent.mkdir(mode=0o700, exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Invalid(f"No SSH key could be made: {done.stderr.strip()}", "Make one with `ssh-keygen -t ed25519`.")
    output.note(f"made an SSH key for you: {file}")
    return file.with_name("id_ed25519.pub")


def read_key(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}.") from error


def public_line(text: str) -> str:
    """The one line that may leave this machine."""
    if "PRIVATE KEY" in text:
        raise Invalid("This is a private key, and it stays here.", "Give the .pub file beside it.")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) != 1 or len(text) > LIMIT_BYTES:
        raise Invalid("This is not one public key on one line, as in ~/.ssh/id_ed25519.pub.")
    return lines[0].replace("\t", " ")


@key.command()
@click.argument("name")
@click.pass_obj
def remove(session: Session, name: str) -> None:
    """Remove a key, by name or id. It leaves every machine that has it; sessions that it opened end."""
    session.client().keys.remove(name)
    if session.json:
        output.json({"removed": name})
    else:
        output.echo(output.safe(f"Removed {name}."))
