"""A name means one runtime or none. Never another one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.resolve import Name, family, resolve

NAMES = Library().names()


@pytest.mark.acceptance("D02", "RT05")
@pytest.mark.parametrize(
    ("spec", "id"),
    [
        ("python:3.11+ml", "python:3.11+ml"),
        ("python@3.11+ml", "python:3.11+ml"),
        ("python-3.11-ml", "python:3.11+ml"),
        ("python:3.11-ml", "python:3.11+ml"),
        ("python:3.11", "python:3.11"),
        ("python-3.11", "python:3.11"),
        ("python@3.11.x", "python:3.11"),
        ("python@3.x", "python:3.13"),
        ("python@latest", "python:3.13"),
        ("python", "python:3.11"),
        ("java:17", "java:17"),
        ("java-21", "java:21"),
        ("node:18", "node:18"),
        ("node@22.x", "node:22"),
        ("go", "go:1.27"),
        ("rust:stable", "rust:stable"),
        ("pytorch", "pytorch:2.13.0-cpu"),
        ("pytorch-2.13.0-cu126", "pytorch:2.13.0-cu126"),
        ("pytorch-notebook", "pytorch-notebook:2.13.0-cpu"),
        ("pytorch-notebook-2.13.0-cpu", "pytorch-notebook:2.13.0-cpu"),
    ],
)
def test_spellings(spec: str, id: str) -> None:
    assert resolve(spec, NAMES).id == id


@pytest.mark.acceptance("D01", "D02", "RT05")
@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("python-3.11-nonexistent", "python:3.11"),
        ("python:3.11+nonexistent", "python:3.11+ml"),
        ("python:3.9", "python:3.11"),
        ("python@3.9.x", "python:3.11"),
        ("python@3.1.x", "python:3.11"),  # 3.11 is not 3.1.1
        ("python:3", "python:3.11"),
        ("python@3.11.2", "python:3.11"),
        ("phyton", "python"),
        ("node:16", "node:18"),
        ("pytorch:2.13.0", "pytorch:2.13.0-cpu"),
        ("jupyer", "jupyter"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest(spec: str, near: str) -> None:
    with pytest.raises(Problem) as refused:
        resolve(spec, NAMES)
    assert refused.value.code == "unknown_runtime"
    assert near in refused.value.extra["nearest"]
    assert spec in refused.value.message


@pytest.mark.parametrize(
    "spec", ["", " ", "python:", ":3.11", "python::3.11", "python@3.11@x", "../x", "a\nb", "x" * 500]
)
def test_nonsense_is_refused(spec: str) -> None:
    with pytest.raises(Problem, match="There is no runtime"):
        resolve(spec, NAMES)


def test_several_versions_without_a_default_are_ambiguous() -> None:
    with pytest.raises(Problem) as refused:
        resolve("a", [Name("a", "1"), Name("a", "2")])
    assert refused.value.extra["matches"] == ["a:1", "a:2"]
    assert resolve("a", [Name("a", "1"), Name("a", "2", default=True)]).version == "2"


def test_of_two_defaults_the_newer_one_counts() -> None:
    names = [Name("a", version, default=True) for version in ("2.9", "2.10", "2.10-r2")]
    assert resolve("a", [*names, Name("a", "3")]).version == "2.10-r2"
    with pytest.raises(Problem) as refused:
        resolve("a", [Name("a", "2-cpu", default=True), Name("a", "2-cu126", default=True)])
    assert refused.value.code == "ambiguous_runtime"


REVISED = [Name("a", version) for version in ("3.11", "3.11-r2", "3.11-r10", "3.11+ml", "3.11+ml-r2", "3.9", "3.9-r7")]


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("a:3.11", "3.11-r10"),
        ("a-3.11", "3.11-r10"),
        ("a:3.11-r2", "3.11-r2"),
        ("a-3.11-r2", "3.11-r2"),
        ("a:3.11-r1", "3.11"),
        ("a:3.11+ml", "3.11+ml-r2"),
        ("a-3.11-ml", "3.11+ml-r2"),
        ("a-3.11-ml-r1", "3.11+ml"),
        ("a@3.x", "3.11-r10"),
        ("a@latest", "3.11-r10"),
        ("a@3.9.x", "3.9-r7"),
    ],
)
def test_a_version_means_its_newest_revision(spec: str, version: str) -> None:
    assert resolve(spec, REVISED).version == version


def test_revisions_are_in_order_and_are_not_invented() -> None:
    assert [name.version for name in family("a", reversed(REVISED))] == [
        "3.9", "3.9-r7", "3.11", "3.11-r2", "3.11-r10", "3.11+ml", "3.11+ml-r2",
    ]  # fmt: skip
    for spec in ("a:3.11-r3", "a:3.11-r0", "a:3.11-r02", "a:3.9-r1-r7"):
        with pytest.raises(Problem, match="There is no runtime"):
            resolve(spec, REVISED)
    assert resolve("b", [Name("b", "1"), Name("b", "1-r2")]).version == "1-r2", "one version, in two revisions"


def test_a_dashed_spelling_of_two_runtimes_is_ambiguous() -> None:
    names = [Name("a", "1-b"), Name("a", "1+b")]
    assert resolve("a:1+b", names).version == "1+b"
    with pytest.raises(Problem, match="several"):
        resolve("a-1-b", names)


def test_families_are_in_order() -> None:
    assert [name.version for name in family("a", [Name("a", "3.11"), Name("a", "3.9"), Name("b", "1")])] == [
        "3.9",
        "3.11",
    ]


_WORD = st.from_regex(r"[a-z][a-z0-9]{0,3}(-[a-z]{1,3})?", fullmatch=True)
_VERSION = st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,2}([-+][a-z]{1,3})?", fullmatch=True)
_NAMES = st.lists(st.builds(Name, _WORD, _VERSION), unique_by=lambda name: name.id, max_size=12)


@given(_NAMES)
def test_every_runtime_is_found_by_its_own_id(names: list[Name]) -> None:
    for name in names:
        assert resolve(name.id, names) == name
        assert resolve(f"{name.bundle}@{name.version}", names) == name


@given(
    _NAMES,
    st.text(max_size=20) | st.builds("{}:{}".format, _WORD, _VERSION) | st.builds("{}-{}".format, _WORD, _VERSION),
)
def test_an_answer_is_always_what_was_asked_for(names: list[Name], spec: str) -> None:
    """Whatever the answer is: with its name and version spelled out, it is the spec again."""
    try:
        found = resolve(spec, names)
    except Problem:
        return
    assert found in names

    def plain(text: str) -> str:
        return text.replace(":", "-").replace("@", "-").replace("+", "-")

    assert spec == found.bundle or plain(spec) == plain(found.id)


@given(_NAMES, _WORD, st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2})?", fullmatch=True))
def test_a_line_means_its_newest_version_without_a_tag(names: list[Name], bundle: str, line: str) -> None:
    fitting = [
        name for name in names if name.bundle == bundle and not name.tags and f"{name.version}.".startswith(f"{line}.")
    ]
    if not fitting:
        with pytest.raises(Problem):
            resolve(f"{bundle}@{line}.x", names)
        return
    found = resolve(f"{bundle}@{line}.x", names)
    assert found in fitting
    numbers = lambda name: [int(part) for part in name.version.split(".")]  # noqa: E731
    assert numbers(found) == max(map(numbers, fitting))
