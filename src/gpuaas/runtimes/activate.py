"""The environment of a runtime: as variables for a sandbox, and as the script that a shell sources.

The script resolves its own directory once and exports version paths: after `current` moves on, a running process must
not import half of the next version.
"""

from gpuaas.runtimes.recipe import Recipe

FILE = "activate.sh"


def variables(recipe: Recipe, path: str) -> dict[str, str]:
    """`path` is what PATH was before."""
    prepend = [part.replace("${root}", recipe.root) for part in recipe.path_prepend]
    found = {name: value.replace("${root}", recipe.root) for name, value in recipe.environment}
    return {**found, "PATH": ":".join([*prepend, path])}


def script(recipe: Recipe) -> str:
    own = f"GPUAAS_RUNTIME_{recipe.name.replace('-', '_').upper()}"
    lines = [
        f"# {recipe.id}, managed by gpuaas. Use: . {recipe.root.rpartition('/')[0]}/current/{FILE}",
        # Sourced again, or after another version of the same bundle: that one's paths leave.
        f'if [ -n "${{{own}-}}" ]; then',
        f'    PATH=$(printf %s "$PATH" | tr : "\\n" | grep -v "^${{{own}}}/" | tr "\\n" :)',
        "    PATH=${PATH%:}",
        "fi",
        f"export {own}={_quoted(recipe.root)}",
    ]
    for name, value in recipe.environment:
        lines.append(f"export {name}={_quoted(value.replace('${root}', recipe.root))}")
    prepend = ":".join(part.replace("${root}", recipe.root) for part in recipe.path_prepend)
    if prepend:
        lines.append(f'export PATH={_quoted(prepend)}:"$PATH"')
    lines += ["hash -r 2>/dev/null || true", ""]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Values are plain by the recipe's rules; quoted all the same."""
    return "'" + text.replace("'", "'\\''") + "'"
