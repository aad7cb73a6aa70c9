"""`gpuaas runtime deploy|deprecate` and the catalog in `list` and `info`: what a server has for its machines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuaas.cli import exits, output
from gpuaas.cli.command import Command
from gpuaas.cli.installation import state_dir_option
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.runtime_chosen import chosen, for_each
from gpuaas.cli.runtime_revisions import to_build
from gpuaas.cli.session import Session
from gpuaas.kit.errors import Problem

if TYPE_CHECKING:
    from gpuaas.runtimes.recipe import Recipe
    from gpuaas.runtimes.settings import Settings
    from gpuaas.runtimes.shelf import Shelf
    from gpuaas.sdk.types import RuntimeBundleView

WORKERS = ("editor", "admin")  # of a project
BUILDERS = ("platform_admin", "platform_ops", "platform_builder")


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("names", nargs=-1, type=click.UNPROCESSED, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Everything that public registries can give.")
@click.option("--relock", is_flag=True, help="Take the newest files; of what is published, as its next revision.")
@click.option("--from", "source", metavar="SOURCE", help="What another site publishes, instead of building it.")
@click.option("--project", "-p", metavar="PROJECT", help="Only for this project, by whoever works in it.")
@click.option("--for-everybody", is_flag=True, help="Recipes of your own too, which are for a project otherwise.")
@click.option("--recipes", "directories", multiple=True, type=click.Path(path_type=Path, file_okay=False),
              envvar="GPUAAS_RECIPES", metavar="DIRECTORY", help="Recipes of your own, besides ours.")  # fmt: skip
@state_dir_option
@click.pass_obj
def deploy(
    session: Session, names: tuple[str, ...], everything: bool, relock: bool, source: str | None,
    project: str | None, for_everybody: bool, directories: tuple[Path, ...], state_dir: Path,
) -> int:  # fmt: skip
    """Build runtimes here if need be, and publish them on the server.

    For everybody by operators and builders; with --project by its editors and admins, and for its machines only.
    Names as for `build`; each also as a flag: --python-3.11-ml, --python-all, --all. Machines can have them at once;
    nothing restarts.
    """
    from gpuaas.runtimes.settings import load
    from gpuaas.runtimes.shelf import Shelf

    if project and for_everybody:
        raise click.UsageError("Either --project or --for-everybody, not both.")
    shelf = Shelf(state_dir / "runtimes")
    done: list[RuntimeBundleView] = []

    def tell(bundle: "RuntimeBundleView") -> None:
        done.append(bundle)
        if not session.json:
            output.echo(output.safe(f"{bundle.name} is {bundle.state}: {bundle.id}"))

    code = exits.OK
    if source is not None:
        for name, version in _fetched(session, names, everything, relock, source, shelf, project):
            tell(publish(session, name, version, shelf, project))
    else:
        settings = load()
        picked = chosen(names, everything, directories, settings)
        _for_somebody(picked.recipes, project, for_everybody)
        _may_publish(session, project)

        def work(recipe: "Recipe") -> None:
            tell(_deployed(session, recipe, project, relock, settings, shelf))

        code = for_each(session, picked, settings, shelf, relock, work)
    if session.json:
        output.json_page(done)
    return code


def _for_somebody(recipes: "list[Recipe]", project: str | None, for_everybody: bool) -> None:
    own = [recipe.id for recipe in recipes if recipe.support == "custom"]
    if own and not project and not for_everybody:
        raise Invalid(
            f"Who is {', '.join(own)} for? A recipe of one's own is for a project.",
            "Say --project PROJECT, or as an operator or builder --for-everybody.",
        )


def _deployed(
    session: Session, recipe: "Recipe", project: str | None, relock: bool, settings: "Settings", shelf: "Shelf"
) -> "RuntimeBundleView":
    from gpuaas.cli.runtime_progress import shown
    from gpuaas.runtimes import tools
    from gpuaas.runtimes.build.builder import build as make
    from gpuaas.runtimes.recipe import Recipe

    wanted = to_build(session, recipe, project, relock, settings, shelf)
    if not isinstance(wanted, Recipe):
        return wanted
    with shown(wanted.id, json=session.json) as report:
        # What is another revision was locked a moment ago.
        make(wanted, tools.architecture(), settings, shelf, report, relock=relock and wanted.id == recipe.id)
    return publish(session, wanted.name, wanted.version, shelf, project)


def _fetched(
    session: Session,
    names: tuple[str, ...],
    everything: bool,
    relock: bool,
    source: str,
    shelf: "Shelf",
    project: str | None,
) -> Iterator[tuple[str, str]]:
    from gpuaas.cli.runtime_sources import pulled

    if everything or relock or not names:
        raise Invalid("Which runtimes of the source?", f"Name them: `gpuaas runtime list --from {source}` lists them.")
    _may_publish(session, project)
    for manifest in pulled(session, [name.removeprefix("--") for name in names], source, shelf):
        yield manifest.bundle, manifest.version


def _may_publish(session: Session, project: str | None) -> None:
    """Before a build that takes minutes, not after it."""
    who = session.client().whoami()
    if project is not None:
        roles = {each.role for each in who.projects if project in (each.id, each.slug)}
        if not roles & set(WORKERS):
            said = f"{who.user.email} is no editor and no admin of the project {project}."
            hint = "Only they publish for it; `gpuaas runtime build` builds without publishing."
            raise Problem("forbidden", 403, said, hint)
        return
    if who.user.platform_role not in BUILDERS:
        said = f"{who.user.email} is no operator of {session.server}, and no builder."
        hint = "Only they publish for everybody; with --project one of yours gets it; `gpuaas runtime build` builds."
        raise Problem("forbidden", 403, said, hint)


def publish(
    session: Session, bundle: str, version: str, shelf: "Shelf", project: str | None = None
) -> "RuntimeBundleView":
    """What is built here, on the server: its manifest, then the image as far as it is not there, then for all, or for
    one project."""
    from gpuaas.cli.runtime_progress import sending
    from gpuaas.runtimes import tools
    from gpuaas.runtimes.verify import manifest_of

    manifest, place = manifest_of(bundle, version, shelf, tools.architecture())
    said: dict[str, Any] = json.loads((place / "manifest.json").read_bytes())
    runtimes = session.client().runtimes
    described = runtimes.describe(said, project=project)
    if described.received_bytes < described.size_bytes:  # also of what is published, where the server has lost it
        image = shelf.image(manifest.layers[0].sha256)
        with sending(f"send {described.name}", described.size_bytes, json=session.json) as sent:
            runtimes.send_image(described, image, lambda here, size: sent(here))
    return runtimes.publish(described.id, project=project) if described.state == "draft" else described


@click.command(cls=Command)
@click.argument("name")
@click.option("--project", "-p", metavar="PROJECT", help="Of this project's own.")
@click.pass_obj
def deprecate(session: Session, name: str, project: str | None) -> None:
    """Deprecate a version in the catalog (operators, builders; of a project: its editors and admins).

    Machines that have it keep it; nobody gets it anew.
    """
    bundle = session.client().runtimes.deprecate(name, project=project)
    if session.json:
        return output.json(bundle)
    return output.echo(output.safe(f"{bundle.name} is {bundle.state}."))


@click.command(cls=Command)
@click.argument("name")
@click.option("--project", "-p", metavar="PROJECT", help="Instead of your default project.")
@click.pass_obj
def delete(session: Session, name: str, project: str | None) -> None:
    """Delete a draft of a project's own, or the image of a deprecated version that no machine has."""
    session.client().runtimes.delete(name, project=session.named_project(project))
    if not session.json:
        output.echo(output.safe(f"{name} is deleted."))


def list_catalog(session: Session, project: str | None) -> None:
    runtimes = session.client().runtimes
    found = list(runtimes.of_project(project) if project else runtimes.list())
    if session.json:
        return output.json_page(found)
    columns = ("RUNTIME", "PRODUCT", "SUPPORT", "GPUS", "ARCH", "FOR", "STATE", "SIZE", "ID")
    empty = "The project has none of its own." if project else "The catalog is empty: `gpuaas runtime deploy`."
    return output.table(columns, [_row(each) for each in found], empty=empty)


def _row(item: "RuntimeBundleView") -> tuple[str, ...]:
    from gpuaas.runtimes.sizes import show_bytes

    name = f"{item.name}{' (default)' if item.default else ''}"
    what = (name, item.product, item.support, item.family, item.architecture)
    return (*what, _scope(item), item.state, show_bytes(item.size_bytes), item.id)


def _scope(item: "RuntimeBundleView") -> str:
    return "everybody" if item.scope == "platform" else f"project {item.project_id}"


def show_in_catalog(session: Session, name: str) -> None:
    from gpuaas.runtimes.sizes import show_bytes

    found = session.client().runtimes.show(name)
    if session.json:
        return output.json(found)
    wants = found.requirements
    known = list(session.client().runtimes.versions(found.slug))
    versions = ", ".join(dict.fromkeys(each.version for each in known))
    builds = ", ".join(each.architecture for each in known if each.version == found.version)
    return output.fields([
        ("runtime", found.name), ("product", found.product), ("description", found.description),
        ("support", found.support), ("for", _scope(found)), ("state", found.state), ("versions", versions),
        ("directory", found.root),
        ("architectures", builds), ("GPUs", wants.gpu_family), ("driver", wants.min_driver),
        ("CUDA", wants.cuda), ("ROCm", wants.rocm),
        ("memory", show_bytes(wants.min_memory_bytes) if wants.min_memory_bytes else ""),
        ("recommended", show_bytes(wants.recommended_memory_bytes) if wants.recommended_memory_bytes else ""),
        ("image", found.digest), ("image size", show_bytes(found.size_bytes)), ("id", found.id),
    ])  # fmt: skip
