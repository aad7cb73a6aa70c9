"""`gpuaas-runtime` in a machine: a name means there what it means to the server, among what the machine has."""

import subprocess
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.node.host import runtimes
from gpuaas.runtimes.resolve import Name, resolve

PROGRAM = Path(runtimes.__file__).parent / "gpuaas-runtime.sh"
HERE = [
    Name("python", "3.9"),
    Name("python", "3.11"),
    Name("python", "3.11-r2", default=True),
    Name("python", "3.11.9"),
    Name("python", "3.11.9-r9"),
    Name("python", "3.11.9-r10"),
    Name("python", "3.11+ml"),
    Name("python", "3.11+ml-r2"),
    Name("python", "3.11+ml-r10"),
    Name("python", "3.10-r3"),
    Name("python", "3.12-ml"),
    Name("python", "3.12+ml"),
    Name("python", "3.12+ml-r2"),
    Name("node", "18-r2", default=True),
    Name("node", "22rc1"),
    Name("node", "22"),
    Name("go", "1.22", default=True),
    Name("go", "1.022"),
    Name("java", "17-r1234567", default=True),
    Name("pytorch", "2.13.0-cpu", default=True),
    Name("pytorch-notebook", "2.13.0-cpu", default=True),
    Name("rust", "stable", default=True),
]
SPELLINGS = [
    *(name.id for name in HERE),
    *(name.id.replace(":", "@") for name in HERE),
    *(name.dashed for name in HERE),
    *("python", "node", "go", "java", "pytorch", "pytorch-notebook", "rust"),
    *("python@3.11.x", "python:3.x", "python@3.9.x", "python@latest", "rust:latest", "pytorch@2.x", "python:3.12-ml"),
    *("python:3.11-ml", "python@3.12.x", "python@3.1.x", "python:", "python@", "python:.x", "python:x", "python:3.13"),
    *("pyhton:3.11", "ml", "3.11", "python3.11", "python:3.11+nlp", "python:current", "python-3.12-ml", "PYTHON"),
    *("python:3.11-r1", "python@3.11-r1", "python-3.11-r1", "python:3.11-r3", "python:3.11-r02", "python-3.11-r10"),
    *("python:3.11+ml-r1", "python@3.11-ml-r2", "python-3.11-ml-r10", "python-3.11-ml-r3", "python:3.11.9-r1"),
    *("python@3.10.x", "python:3.10", "python-3.10", "python:3.10-r1", "python@3.11.9.x", "python-3.12-ml-r2"),
    *("node:18", "node@18.x", "node-18", "node:18-r1", "node:latest", "go@latest", "go:1.x", "java:17", "java-latest"),
    *("python@3.11:ml", "python:3.11@ml", "python:r2", "python-r2", "python:-r2", "python:3.11-r2.x", "python:3.11-r"),
    *("python:3.11:ml", "python@3.11@ml", "torch", "python-", "python-3.11-", "rust-stable-x", "rust+stable"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in HERE:
        made = tmp_path / name.bundle / name.version
        made.mkdir(parents=True)
        (made / "activate.sh").write_text(f"export ACTIVE={name.id}\n")
        if name.default:
            (tmp_path / name.bundle / "current").symlink_to(name.version)
    return tmp_path


def run(place: Path, *arguments: str) -> tuple[int, str, str]:
    script = PROGRAM.read_text().replace("root=/opt/gpuaas/runtimes", f"root={place}", 1)
    done = subprocess.run(
        ["sh", "-c", script, "gpuaas-runtime", *arguments], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("spec", SPELLINGS)
def test_a_name_means_what_it_means_to_the_server(place: Path, spec: str) -> None:
    """The server's default is the machine's current version."""
    code, said, _ = run(place, "use", spec, "--", "sh", "-c", "echo $ACTIVE")
    try:
        wanted: str | None = resolve(spec, HERE).id
    except Problem:
        wanted = None
    assert (code, said or None) == (code if wanted is None else 0, wanted)
    assert (code in (2, 3)) is (wanted is None)
    assert run(place, "current", spec)[1] == said


def test_what_is_refused_is_refused_with_what_there_is(place: Path) -> None:
    code, _, said = run(place, "use", "python@3.13")
    assert (code, said) == (
        3,
        "gpuaas-runtime: there is no runtime python@3.13 here. Nearest: "
        "python:3.10-r3 python:3.11 python:3.11+ml python:3.11+ml-r10 python:3.11+ml-r2 python:3.11-r2 python:3.11.9 "
        "python:3.11.9-r10 python:3.11.9-r9 python:3.12+ml python:3.12+ml-r2 python:3.12-ml python:3.9",
    )
    code, _, said = run(place, "use", "jupyter")
    assert code == 3
    assert "There is: " in said
    assert "rust:stable" in said
    code, _, said = run(place, "use", "python-3.12-ml")
    assert (code, said) == (2, "gpuaas-runtime: python-3.12-ml can mean several: python:3.12+ml-r2 python:3.12-ml")


@pytest.mark.parametrize("spec", ["", "../../etc", "..", "..:..", "a/b", "$(id)", "a b", "*", "python:*", "-n", ".:."])
def test_what_is_no_name_never_becomes_a_path(place: Path, spec: str) -> None:
    (place.parent / "activate.sh").write_text("echo outside\n")
    code, said, error = run(place, "use", spec, "--", "true")
    assert (code, said) == (2, "")
    assert "is not the name of a runtime" in error


def test_an_empty_machine_has_none(tmp_path: Path) -> None:
    assert run(tmp_path, "list") == (0, "", "")
    assert run(tmp_path, "use", "python")[0] == 3
