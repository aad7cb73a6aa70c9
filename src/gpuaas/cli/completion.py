"""`gpuaas completion`: the script that a shell evaluates."""

import click
from click.shell_completion import get_completion_class

from gpuaas.cli import output


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of your shell.

    \b
    bash:  eval "$(gpuaas completion bash)"       in ~/.bashrc
    zsh:   eval "$(gpuaas completion zsh)"        in ~/.zshrc
    fish:  gpuaas completion fish > ~/.config/fish/completions/gpuaas.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    made = found(context.find_root().command, {}, "gpuaas", "_GPUAAS_COMPLETE")
    output.echo(made.source_template % made.source_vars())
