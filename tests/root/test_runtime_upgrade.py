"""A runtime is upgraded and rolled back under a running process: two real builds with different packages, the whole
product, a real machine."""

import subprocess
from pathlib import Path

import pytest

from gpuaas.runtimes.library import Library
from root.conftest import needs
from root.test_up import Person, admin  # noqa: F401 a fixture
from runtimes.builds import CACHE, made, needs_tools

pytestmark = [pytest.mark.slow, needs_tools, needs("ssh", "ssh-keygen", "runc", "nft")]
RECIPES = [Path(__file__).parent.parent / f"runtimes/recipes/science-{version}.yml" for version in (1, 2)]
PLACE = "/opt/gpuaas/runtimes/science"
# Part of NumPy, with files of its own, that `import numpy` does not load.
LATE = "import numpy, sys; print(numpy.__version__, flush=True); sys.stdin.readline(); import numpy.f2py as f; print(f)"
VERSION = "gpuaas-runtime use science -- python -c 'import numpy; print(numpy.__version__)'"


@pytest.fixture(scope="session")
def _built() -> None:
    """Before anybody looks at the machine. What it costs once: 25 s each, 80 MB each."""
    for recipe in RECIPES:
        made(Library().add(recipe))


@pytest.mark.usefixtures("_built")
def test_an_upgrade_and_a_rollback_under_a_running_process(admin: Person) -> None:  # noqa: F811
    for recipe in RECIPES:
        admin("runtime", "deploy", str(recipe), "--for-everybody", "--state-dir", str(CACHE))
    started = admin.json("show", "hello")["active_at"]
    admin("runtime", "apply", "hello", "science:1")
    assert admin.says("hello", VERSION).startswith("1.")
    assert admin.says("hello", f"gpuaas-runtime list; cd {PLACE} && ls") == "* science:1\n1\ncurrent"

    line = admin.ssh_line("hello", f'gpuaas-runtime use science -- python -c "{LATE}"')
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        old = process.stdout.readline()
        assert old.startswith("1.")
        admin("runtime", "use", "hello", "science", "--version", "2")
        assert admin.says("hello", VERSION).startswith("2.")
        assert admin.says("hello", "gpuaas-runtime list") == "science:1\n* science:2"
        assert "from '/opt/gpuaas/runtimes/science/1/lib/" in process.communicate("go\n", timeout=120)[0]
    assert process.returncode == 0

    (item,) = admin.json("runtime", "list", "--on", "hello")["items"]
    assert (item["current_version"], item["previous_version"]) == ("2", "1")
    admin("runtime", "rollback", "hello", "science")
    assert admin.says("hello", "gpuaas-runtime list; gpuaas-runtime current") == "* science:1\n  science:2\nscience:1"
    assert admin.says("hello", VERSION) == old.strip()
    assert (
        admin.says("hello", "gpuaas-runtime use science:2 -- python -c 'import numpy as n; print(n.__version__)'")[0]
        == "2"
    )
    assert admin.says("hello", ". /etc/gpuaas/runtime.env; echo $GPUAAS_RUNTIME_SCIENCE_VERSION") == "1"
    told = [(each["action"], each["version"]) for each in admin.json("runtime", "history", "hello")["items"]]
    assert told == [("rollback", "1"), ("apply", "2"), ("apply", "1")]
    assert admin.json("show", "hello")["active_at"] == started, "the machine ran all the time"
