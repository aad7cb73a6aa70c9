"""`gpuaas runtime`: managed runtimes, built and checked on the machine where this runs; and those of a server."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuaas.cli import (
    exits,
    output,
    runtime_catalog,
    runtime_chosen,
    runtime_gc,
    runtime_index,
    runtime_machines,
    runtime_push,
    runtime_sources,
    runtime_verify,
)
from gpuaas.cli.command import Group
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.runtimes.library import Library
    from gpuaas.runtimes.lock.lockfile import Lock
    from gpuaas.runtimes.manifest import Manifest
    from gpuaas.runtimes.recipe import Recipe
    from gpuaas.runtimes.settings import Settings
    from gpuaas.runtimes.shelf import Shelf

recipes_option = click.option(
    "--recipes",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    envvar="GPUAAS_RECIPES",
    metavar="DIRECTORY",
    help="Recipes of your own, besides ours; repeatable.",
)


@click.group(cls=Group)
def runtime() -> None:
    """Managed runtimes: build, publish, apply, switch, roll back."""


for _command in (
    *(runtime_catalog.deploy, runtime_catalog.deprecate, runtime_catalog.delete, runtime_gc.gc),
    *(runtime_machines.apply, runtime_machines.use, runtime_machines.rollback),
    *(runtime_machines.repair, runtime_machines.remove, runtime_machines.history),
    *(runtime_sources.pull, runtime_sources.source, runtime_index.index, runtime_push.push),
):
    runtime.add_command(_command)


def _library(directories: Iterable[Path]) -> "Library":
    from gpuaas.runtimes.library import Library

    return Library(directories)


def _shelf(state_dir: Path) -> "Shelf":
    from gpuaas.runtimes.shelf import Shelf

    return Shelf(state_dir / "runtimes")


def _chosen(library: "Library", spec: str) -> "Recipe":
    """By name, or a file: what has a slash or ends in .yml is one."""
    if "/" in spec or spec.endswith((".yml", ".yaml")):
        return library.add(Path(spec))
    return library.get(spec)


@runtime.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--relock", is_flag=True, help="Take the newest versions, not those of the last build.")
@click.option("--again", is_flag=True, help="Make the image also when it is there already.")
@click.option("--dry-run", is_flag=True, help="Print what would be taken now, and build nothing.")
@recipes_option
@state_dir_option
@click.pass_obj
def build(
    session: Session,
    names: tuple[str, ...],
    relock: bool,
    again: bool,
    dry_run: bool,
    directories: tuple[Path, ...],
    state_dir: Path,
) -> int:
    """Build runtimes here: python:3.11+ml, python-all, all, or a recipe file such as ./runtime.yml.

    The same recipe gives the same image again, from the same files, until --relock. Nothing is installed on this host.
    """
    from gpuaas.cli.runtime_progress import shown
    from gpuaas.runtimes import settings, tools
    from gpuaas.runtimes.build.builder import build as make

    shelf, found = _shelf(state_dir), settings.load()
    made: list[Any] = []

    def work(recipe: "Recipe") -> None:
        if dry_run:
            made.append(_planned(session, recipe, found, shelf))
            return
        with shown(recipe.id, json=session.json) as report:
            built = make(recipe, tools.architecture(), found, shelf, report, relock=relock, again=again)
        made.append({**_facts(built.manifest), "seconds": round(built.seconds, 3), "new": built.new})
        if not session.json:
            output.echo(output.safe(f"{recipe.id} is {'built' if built.new else 'there already'}: {built.sha256}"))

    picked = runtime_chosen.chosen(names, False, directories, found)
    code = runtime_chosen.for_each(session, picked, found, shelf, relock, work)
    if session.json:
        output.json_page(made)
    return code


def _planned(session: Session, recipe: "Recipe", found: "Settings", shelf: "Shelf") -> "Lock":
    """What a build with --relock would be made of."""
    from gpuaas.runtimes import tools
    from gpuaas.runtimes.lock.fresh import fresh

    lock = fresh(recipe, tools.architecture(), found, shelf)
    if not session.json:
        output.note(f"{recipe.id} for {lock.architecture}: {len(lock.artifacts)} files, on a base of {len(lock.base)}")
        rows = [(each.kind, each.name, each.version, each.digest[:19], each.url) for each in lock.artifacts]
        output.table(("KIND", "NAME", "VERSION", "DIGEST", "FROM"), rows)
    return lock


@runtime.command("list")
@click.option("--catalog", "-c", is_flag=True, help="What the server has for its machines, instead.")
@click.option("--project", "-p", metavar="PROJECT", help="What this project has of its own, also drafts, instead.")
@click.option("--on", "machine", metavar="MACHINE", help="What this machine has, instead.")
@click.option("--from", "source", metavar="SOURCE", help="What another site publishes, instead.")
@recipes_option
@state_dir_option
@click.pass_obj
def list_(
    session: Session,
    catalog: bool,
    project: str | None,
    machine: str | None,
    source: str | None,
    directories: tuple[Path, ...],
    state_dir: Path,
) -> None:
    """List runtimes: what there are recipes for, and what is built here."""
    if source is not None:
        return runtime_sources.list_of(session, source, state_dir)
    if machine is not None:
        return runtime_machines.show_on(session, machine)
    if catalog or project:
        return runtime_catalog.list_catalog(session, project)
    from gpuaas.runtimes import tools

    library, shelf = _library(directories), _shelf(state_dir)
    built = {each[:3]: each.sha256 for each in shelf.all_built()}
    rows = []
    for name in library.names():
        recipe = library.get(name.id)
        sha256 = built.pop((recipe.name, recipe.version, tools.here()), "")
        rows.append({**_identity(recipe), "architecture": tools.here() if sha256 else None, "sha256": sha256 or None,
                     "state": _state(recipe, sha256)})  # fmt: skip
    for (bundle, version, architecture), sha256 in built.items():
        rows.append({"runtime": f"{bundle}:{version}", "product": "", "type": "", "support": "custom", "default": False,
                     "description": "", "architecture": architecture, "sha256": sha256 or None,
                     "state": "built"})  # fmt: skip
    if session.json:
        return output.json_page(rows)
    columns = ("RUNTIME", "PRODUCT", "SUPPORT", "STATE", "ARCH", "IMAGE")
    cells = [(row["runtime"], row["product"], row["support"], row["state"], row["architecture"] or "",
              (row["sha256"] or "")[:12]) for row in rows]  # fmt: skip
    return output.table(columns, cells)


def _state(recipe: "Recipe", sha256: str) -> str:
    return "built" if sha256 else "not built" if recipe.buildable else "needs indexes of your site"


@runtime.command()
@click.argument("name")
@click.option("--recipe", "show_recipe", is_flag=True, help="Print the whole recipe, with all that it inherits.")
@click.option("--catalog", "-c", is_flag=True, help="As the server has it.")
@recipes_option
@state_dir_option
@click.pass_obj
def info(
    session: Session, name: str, show_recipe: bool, catalog: bool, directories: tuple[Path, ...], state_dir: Path
) -> None:
    """Show one runtime: what it is made of, what it needs, what is built."""
    if catalog:
        return runtime_catalog.show_in_catalog(session, name)
    from gpuaas.runtimes import document, verify
    from gpuaas.runtimes.sizes import show_bytes

    recipe, shelf = _chosen(_library(directories), name), _shelf(state_dir)
    if show_recipe and not session.json:
        return output.echo("\n".join(output.safe(line) for line in document.dumps(recipe).splitlines()))
    builds = shelf.builds(recipe.name, recipe.version)
    sha256 = shelf.built(recipe.name, recipe.version)
    manifest = verify.manifest_of(recipe.name, recipe.version, shelf)[0] if sha256 else None
    if session.json:
        said = {
            **_identity(recipe),
            "recipe": document.document(recipe),
            "root": recipe.root,
            "state": _state(recipe, sha256 or ""),
        }
        return output.json({**said, "built": _facts(manifest) if manifest else None})
    wants = recipe.requirements
    return output.fields([
        ("runtime", recipe.id), ("product", recipe.product), ("description", recipe.description),
        ("support", recipe.support), ("state", _state(recipe, sha256 or "")), ("directory", recipe.root),
        ("architectures", ", ".join(wants.architectures)), ("GPUs", wants.gpu_family), ("driver", wants.min_driver),
        ("CUDA", wants.cuda), ("ROCm", wants.rocm),
        ("memory", show_bytes(wants.min_memory_bytes) if wants.min_memory_bytes else ""),
        ("recommended", show_bytes(wants.recommended_memory_bytes) if wants.recommended_memory_bytes else ""),
        ("packages", ", ".join(item for source in recipe.sources for item in source.items)),
        ("caches", ", ".join(cache.volume for cache in recipe.caches)),
        ("built for", ", ".join(builds)), ("image", sha256),
        ("image size", show_bytes(manifest.layers[0].size) if manifest else ""),
        ("files", manifest.entries if manifest else ""),
        ("papers", shelf.bundle(recipe.name, recipe.version) / sha256 if sha256 else ""),
    ])  # fmt: skip


@runtime.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@recipes_option
@state_dir_option
@click.pass_obj
def test(session: Session, names: tuple[str, ...], directories: tuple[Path, ...], state_dir: Path) -> None:
    """Run a built runtime's own checks in its image: interpreters start, packages import."""
    from gpuaas.runtimes import verify

    shelf = _shelf(state_dir)
    tested = []
    for bundle, version in runtime_chosen.built(names, directories, shelf):
        manifest = verify.test(bundle, version, shelf, _say(session))
        tested.append({"runtime": manifest.id, "checks": len(manifest.recipe.verify), "state": "succeeded"})
        if not session.json:
            output.echo(output.safe(f"{manifest.id}: {len(manifest.recipe.verify)} checks succeeded"))
    if session.json:
        output.json_page(tested)


@runtime.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--catalog", "-c", is_flag=True, help="The server's images, instead (operators, builders).")
@click.option("--on", "machine", metavar="MACHINE", help="What this machine has, instead; what is damaged is healed.")
@recipes_option
@state_dir_option
@click.pass_obj
def verify(
    session: Session,
    names: tuple[str, ...],
    catalog: bool,
    machine: str | None,
    directories: tuple[Path, ...],
    state_dir: Path,
) -> int:
    """Compare what is built with its manifest, byte for byte; everything without NAME. Exits 1 when one differs.

    A damaged image of the server is gone then, and `deploy` sends it again. A machine's are fetched again at once.
    """
    if machine is not None:
        return runtime_verify.verify_on(session, machine, names)
    if catalog:
        return runtime_verify.verify_catalog(session, names)
    from gpuaas.runtimes.verify import verify as look

    shelf = _shelf(state_dir)
    verdicts = [
        look(bundle, version, shelf, architecture)
        for bundle, version in runtime_chosen.built(names, directories, shelf)
        for architecture in shelf.builds(bundle, version) or [""]
    ]
    if session.json:
        output.json_page(verdicts)
    else:
        rows = [(each.runtime, each.architecture, "intact" if each.intact else "altered", "; ".join(each.findings))
                for each in verdicts]  # fmt: skip
        output.table(("RUNTIME", "ARCH", "STATE", "FINDINGS"), rows, empty="Nothing is built here.")
    return exits.OK if all(each.intact for each in verdicts) else exits.FAILED


@runtime.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--architecture", type=click.Choice(["amd64", "arm64"]),
              help="Where it is here for both.  [default: this machine's]")  # fmt: skip
@recipes_option
@state_dir_option
@click.pass_obj
def export(
    session: Session, name: str, file: Path, architecture: str | None, directories: tuple[Path, ...], state_dir: Path
) -> None:
    """Write a built runtime into one FILE, to carry it to a machine without network."""
    from gpuaas.runtimes import bundlefile

    shelf = _shelf(state_dir)
    ((bundle, version),) = runtime_chosen.built((name,), directories, shelf)
    manifest = bundlefile.export(bundle, version, shelf, file, architecture or "")
    if session.json:
        return output.json({**_facts(manifest), "file": str(file)})
    return output.echo(output.safe(f"{manifest.id} for {manifest.architecture} is in {file}"))


@runtime.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@state_dir_option
@click.pass_obj
def import_(session: Session, file: Path, state_dir: Path) -> None:
    """Take in a FILE that `export` wrote. It is compared with its manifest, file by file; what differs is refused."""
    from gpuaas.runtimes import bundlefile

    manifest = bundlefile.take_in(file, _shelf(state_dir))
    if session.json:
        return output.json(_facts(manifest))
    said = f"{manifest.id} for {manifest.architecture} is here: {manifest.layers[0].sha256}"
    return output.echo(output.safe(said))


def _say(session: Session) -> Callable[[str, int | None], None]:
    return (lambda message, percent: None) if session.json else (lambda message, percent: output.note(message))


def _identity(recipe: "Recipe") -> dict[str, Any]:
    return {
        "runtime": recipe.id,
        "bundle": recipe.name,
        "version": recipe.version,
        "product": recipe.product,
        "description": recipe.description,
        "type": recipe.type,
        "support": recipe.support,
        "default": recipe.default,
    }


def _facts(manifest: "Manifest") -> dict[str, Any]:
    return {
        "runtime": manifest.id,
        "sha256": manifest.layers[0].sha256,
        "image_bytes": manifest.layers[0].size,
        "tree_bytes": manifest.tree_bytes,
        "entries": manifest.entries,
        "architecture": manifest.architecture,
        "lock": manifest.lock,
    }
