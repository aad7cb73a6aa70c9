"""The script that a shell sources: version paths, resolved once, and nothing else of the shell changed."""

import subprocess

import pytest

from gpuaas.runtimes import activate
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.recipe import Recipe

ONE = Recipe("a-b", "1.0", environment=(("A_HOME", "${root}/x"), ("SAID", "it's fine")), path_prepend=("${root}/bin",))
TWO = Recipe("a-b", "2.0", environment=(("A_HOME", "${root}/x"),), path_prepend=("${root}/bin",))


def shell(text: str, program: str = "sh") -> list[str]:
    done = subprocess.run([program, "-eu", "-c", text], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("program", ["sh", "bash"])
def test_variables(program: str) -> None:
    root = "/opt/gpuaas/runtimes/a-b/1.0"
    said = shell(
        f'{activate.script(ONE)}\necho "$PATH"; echo "$A_HOME"; echo "$SAID"; echo "$GPUAAS_RUNTIME_A_B"', program
    )
    assert said == [f"{root}/bin:/usr/bin:/bin", f"{root}/x", "it's fine", root]


@pytest.mark.parametrize("program", ["sh", "bash"])
def test_again_and_another_version(program: str) -> None:
    script = "\n".join([activate.script(ONE), activate.script(ONE), activate.script(TWO)])
    assert shell(f'{script}\necho "$PATH"; echo "$A_HOME"', program) == [
        "/opt/gpuaas/runtimes/a-b/2.0/bin:/usr/bin:/bin",
        "/opt/gpuaas/runtimes/a-b/2.0/x",
    ]


@pytest.mark.parametrize("name", [name.id for name in Library().names()])
def test_every_shipped_one_can_be_sourced(name: str) -> None:
    recipe = Library().get(name)
    wanted = activate.variables(recipe, "/usr/bin:/bin")
    said = shell(activate.script(recipe) + "\n" + "\n".join(f'echo "${variable}"' for variable in wanted))
    assert said == list(wanted.values())
