"""What all commands have in common: `--json`, and a good guess when a name is mistyped."""

import difflib
from typing import Any

import click

from gpuaas.cli.session import Session


def _want_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).json = True


def _json_option() -> click.Option:
    return click.Option(
        ["--json"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_want_json,
        help="Print JSON, and nothing else, on stdout.",
    )


class Command(click.Command):
    """A command that answers a program as well as a person."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())


class Group(click.Group):
    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())  # before the command's name it means the same

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        if near:
            said = "Did you mean " + " or ".join(f"`{ctx.command_path} {guess}`" for guess in near) + "?"
        else:
            said = f"See `{ctx.command_path} --help`."
        raise click.UsageError(f"There is no command {name!r}. {said}", ctx)


project_option = click.option("--project", "-p", metavar="PROJECT", help="Instead of your default project.")
