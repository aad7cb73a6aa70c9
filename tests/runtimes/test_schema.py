"""The format of a recipe: what it takes, and that an error points at the line and says what to do."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import document, schema
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.recipe import Cache, Check, Mount, Requirements, Source

EVERYTHING = """\
name: tools
version: 1.0+extra
product: Tools
description: All fields
type: bundle
support: preview
default: true
buildable: false
from: [python:3.11, "node@22"]
python: bin/python3.11
sources:
  - pypi: [numpy>=2, "torch==2.13.0+cpu"]
    index: pytorch-cpu
  - deb: git
    suite: bookworm
    build_only: true
  - npm: ["@scope/tool@18"]
    into: lib/tool
    when: {architecture: arm64}
  - archive: https://example.org/a.tar.gz
    sha256: 0000000000000000000000000000000000000000000000000000000000000000
    into: opt/a
    strip: 1
links: {bin/a: opt/a/bin/a}
remove: [share/doc, "lib/*.a"]
run: echo hello
mounts:
  - source: bin
    target: /usr/local/bin
    readonly: true
    selective: [a]
environment:
  A_HOME: ${root}/opt/a
  EMPTY: ""
  PATH_PREPEND: "${root}/bin:/opt/x"
caches:
  - {volume: pip-cache, target: /var/cache/pip, variable: PIP_CACHE_DIR}
requirements:
  architecture: [amd64, arm64]
  gpu_family: nvidia
  min_driver: 560.28
  cuda: 12.10
  min_memory: 512MB
  recommended_memory: 2GiB
verify:
  - a --version
  - {run: a, expect: ^1}
"""

# From the runtime system's design document, as it is there.
SEED = """\
name: "python-3.11-ml"
type: "system"
version: "3.11"
description: "Python 3.11 with ML packages"

mounts:
  - source: "bin"
    target: "/usr/local/bin"
    readonly: true
    selective: ["python", "python3", "pip"]
  - source: "ml-venv/lib/python3.11/site-packages"
    target: "/usr/local/lib/python3.11/site-packages"
    readonly: true

environment:
  PYTHON_HOME: "/usr/local"
  PYTHONPATH: "/usr/local/lib/python3.11/site-packages"
  PATH_PREPEND: "/usr/local/bin"

requirements:
  min_memory: "512MB"
  recommended_memory: "2GB"
"""


def test_every_field() -> None:
    recipe = schema.loads(EVERYTHING, "x")
    assert (recipe.id, recipe.root) == ("tools:1.0+extra", "/opt/gpuaas/runtimes/tools/1.0+extra")
    assert recipe.parents == ("python:3.11", "node@22")
    assert recipe.sources == (
        Source("pypi", ("numpy>=2", "torch==2.13.0+cpu"), index="pytorch-cpu"),
        Source("deb", ("git",), suite="bookworm", build_only=True),
        Source("npm", ("@scope/tool@18",), into="lib/tool", architectures=("arm64",)),
        Source("archive", ("https://example.org/a.tar.gz",), into="opt/a", sha256="0" * 64, strip=1),
    )
    assert recipe.mounts == (Mount("bin", "/usr/local/bin", True, ("a",)),)
    assert recipe.environment == (("A_HOME", "${root}/opt/a"), ("EMPTY", ""))
    assert recipe.path_prepend == ("${root}/bin", "/opt/x")
    assert recipe.caches == (Cache("pip-cache", "/var/cache/pip", "PIP_CACHE_DIR"),)
    wanted = Requirements(("amd64", "arm64"), "nvidia", "560.28", "12.10", "", 512 * 10**6, 2 * 2**30)
    assert recipe.requirements == wanted  # 12.10 is not 12.1
    assert recipe.verify == (Check("a --version"), Check("a", "^1"))
    assert recipe.run == ("echo hello",)


def test_the_seeds_own_example_is_a_recipe() -> None:
    recipe = schema.loads(SEED, "x")
    assert (recipe.id, recipe.type) == ("python:3.11+ml", "system")
    assert recipe.mounts[0].selective == ("python", "python3", "pip")
    assert recipe.path_prepend == ("/usr/local/bin",)
    assert recipe.requirements.recommended_memory_bytes == 2 * 10**9


@pytest.mark.parametrize("text", [EVERYTHING, SEED])
def test_a_recipe_written_and_read_again_is_the_same(text: str) -> None:
    recipe = schema.loads(text, "x")
    assert schema.loads(document.dumps(recipe), "x") == recipe


@pytest.mark.parametrize("name", [name.id for name in Library().names()])
def test_a_shipped_recipe_written_and_read_again_is_the_same(name: str) -> None:
    flat = Library().get(name)
    assert schema.loads(document.dumps(flat), flat.file) == flat


def minimal(more: str) -> str:
    return f"name: a\nversion: 1\n{more}\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "is empty"),
        ("name: a", 1, "'version' is missing"),
        ("- a", 1, "must be a mapping"),
        ("name: [a\n", 2, "is not YAML"),
        (minimal("sorces: []"), 3, "did you mean sources?"),
        (minimal("name: b"), 3, "is there twice"),
        ("name: A b\nversion: 1", 1, "is not a name"),
        ("name: ../x\nversion: 1", 1, "is not a name"),
        ("name: a\nversion: ../1", 2, "is not a version"),
        ("name: a\nversion: 1/2", 2, "is not a version"),
        (minimal("type: other"), 3, "is not one of system, bundle"),
        (minimal("default: maybe"), 3, "neither true nor false"),
        (minimal("a: &x 1\nb: *x"), 3, "anchors and aliases"),
        (minimal("sources: [{}]"), 3, "exactly one of"),
        (minimal("sources: [{pypi: a, deb: b}]"), 3, "exactly one of"),
        (minimal("sources: [{pypi: 'a; rm'}]"), 3, "is not a requirement"),
        (minimal("sources: [{pypi: '-e .'}]"), 3, "is not a requirement"),
        (minimal("sources: [{pypi: 'a @ https://x'}]"), 3, "is not a requirement"),
        (minimal("sources: [{deb: git}]"), 3, "'suite' is missing"),
        (minimal("sources: [{deb: --help, suite: bookworm}]"), 3, "is not a Debian package"),
        (minimal("sources: [{npm: left-pad}]"), 3, "with its version"),
        (minimal("sources: [{pypi: a, suite: bookworm}]"), 3, "means nothing for pypi"),
        (minimal("sources: [{archive: 'https://x/a.tgz', into: a}]"), 3, "sha256"),
        (minimal("sources: [{archive: 'ftp://x/a.tgz', into: a}]"), 3, "is not an address"),
        (minimal("sources: [{pypi: a, into: ../b}]"), 3, "is not a path below"),
        (minimal("sources: [{pypi: a, build_only: true}]"), 3, "deb only"),
        (minimal("mounts: [{source: bin, target: /etc}]"), 3, "is not a place for a runtime"),
        (minimal("mounts: [{source: bin, target: /usr/local/../../etc}]"), 3, "is not a place"),
        (minimal("mounts: [{source: bin, target: /opt/gpuaas/x}]"), 3, "is not a place"),
        (minimal("mounts: [{source: /etc, target: /usr/local/bin}]"), 3, "is not a path below"),
        (minimal("mounts: [{source: bin, target: /usr/local/bin, readonly: false}]"), 3, "never writable"),
        (minimal("mounts: [{source: bin, target: /usr/local/bin, selective: [../x]}]"), 3, "without slashes"),
        (minimal("mounts:\n  - source: bin\n    target: /etc"), 5, "mounts[0].target"),
        (minimal("environment: {PATH: /x}"), 3, "use PATH_PREPEND"),
        (minimal("environment: {LD_PRELOAD: /x}"), 3, "is reserved"),
        (minimal("environment: {GPUAAS_X: y}"), 3, "is reserved"),
        (minimal("environment: {a b: y}"), 3, "not a name for a variable"),
        (minimal("environment: {A: $(id)}"), 3, "may hold"),
        (minimal("environment: {A: '`id`'}"), 3, "may hold"),
        (minimal("environment: {A: '${HOME}'}"), 3, "may hold"),
        (minimal("environment: {PATH_PREPEND: bin}"), 3, "is not an absolute path"),
        (minimal("caches: [{volume: x, target: /root}]"), 3, "below /var/cache/"),
        (minimal("requirements: {min_memory: 2GBB}"), 3, "is not a size"),
        (minimal("requirements: {min_memory: 2GB, recommended_memory: 1GB}"), 3, "less than min_memory"),
        (minimal("requirements: {cuda: twelve}"), 3, "is not a version"),
        (minimal("requirements: {gpu_family: voodoo}"), 3, "is not one of"),
        (minimal("requirements: {architecture: mips}"), 3, "is not one of amd64, arm64"),
        (minimal("verify: [{run: a, expect: '('}]"), 3, "is not a regular expression"),
        (minimal("links: {../a: b}"), 3, "is not a path below"),
        (minimal("remove: ['../*']"), 3, "is not a pattern"),
        (minimal('description: "a\\u0007"'), 3, "control character"),
        (minimal("description: " + "[" * 40), 3, "is nested deeper"),
        (minimal("# " + "x" * 300_000), 1, "is larger than"),
    ],
)
def test_an_error_points_at_the_line(text: str, line: int, said: str) -> None:
    with pytest.raises(Problem) as refused:
        schema.loads(text, "my/runtime.yml")
    problem = refused.value
    lines = [problem.message, *problem.hint.splitlines()]
    assert any(each.startswith(f"my/runtime.yml:{line}: ") and said in each for each in lines), lines
    assert (problem.code, problem.status) == ("invalid_recipe", 422)


def test_all_errors_come_at_once_in_order() -> None:
    with pytest.raises(Problem) as refused:
        schema.loads("name: X\nversion: ..\ntype: y\n", "f")
    assert [each["line"] for each in refused.value.extra["errors"]] == [1, 2, 3]


@given(st.text(max_size=400))
def test_any_text_is_a_recipe_or_a_problem(text: str) -> None:
    with contextlib.suppress(Problem):
        schema.loads(text, "f")


_LEAF = st.text(max_size=12) | st.integers() | st.booleans() | st.none()
_TREE = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))


@given(st.dictionaries(st.sampled_from([*schema._TOP, *schema._OPTIONAL]), _TREE))
def test_any_value_in_any_field_is_a_recipe_or_a_problem(values: dict[str, object]) -> None:
    import yaml

    with contextlib.suppress(Problem):
        schema.loads(yaml.safe_dump(values), "f")
