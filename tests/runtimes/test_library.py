"""Recipes together: those that ship, those of a user, and what `from:` makes of them."""

from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import schema
from gpuaas.runtimes.inherit import flatten
from gpuaas.runtimes.library import SHIPPED, Library
from gpuaas.runtimes.recipe import Recipe

PROMISED = {
    "python:3.11", "python:3.11+ml", "python:3.12", "python:3.13", "java:17", "java:21", "node:18", "node:22",
    "go:1.27", "rust:stable", "pytorch:2.13.0-cpu", "pytorch:2.13.0-cu126", "pytorch:2.13.0-rocm6.4", "jupyter:4",
    "pytorch-notebook:2.13.0-cpu", "ray:2", "tensorflow:2", "vllm:0", "data-science-notebook:4", "cuda-dev:12.6",
    "rocm-dev:6.4", "dotnet:8",
}  # fmt: skip


def test_everything_promised_ships_and_nothing_else() -> None:
    assert {name.id for name in Library().names()} == PROMISED
    assert len(list(SHIPPED.glob("*.yml"))) == len(PROMISED)


@pytest.mark.parametrize("id", sorted(PROMISED))
def test_a_shipped_recipe_is_complete(id: str) -> None:
    recipe = Library().get(id)
    assert recipe.id == id
    assert recipe.product
    assert recipe.description
    assert recipe.sources
    assert recipe.verify
    assert recipe.requirements.min_memory_bytes
    assert not recipe.parents


def test_most_are_declared_for_arm64() -> None:
    without = {
        name.id for name in Library().names() if "arm64" not in Library().get(name.id).requirements.architectures
    }
    assert without == {"pytorch:2.13.0-rocm6.4", "rocm-dev:6.4", "vllm:0"}


def test_composition() -> None:
    notebook, library = Library().get("pytorch-notebook"), Library()
    items = [item for source in notebook.sources for item in source.items]
    assert items.count("python3.11") == 1, "both parents have one grandparent"
    assert {"torch==2.13.0+cpu", "jupyterlab>=4,<5"} <= set(items)
    assert set(library.get("jupyter").verify) | set(library.get("pytorch").verify) == set(notebook.verify)
    assert notebook.python == "bin/python3.11"
    assert notebook.requirements.min_memory_bytes == 2 * 10**9


def test_selecting() -> None:
    library = Library()
    assert [each.id for each in library.select("python-all")] == [
        "python:3.11",
        "python:3.11+ml",
        "python:3.12",
        "python:3.13",
    ]
    assert {each.id for each in library.select("all")} == PROMISED
    assert [each.id for each in library.select("node-18", "node-all")] == ["node:18", "node:22"]
    for unknown in ("pyton-all", "-all", "alls"):
        with pytest.raises(Problem, match="There is no runtime"):
            library.select("python:3.11", unknown)


def test_a_users_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text(
        "name: mine\nversion: 1\nsupport: supported\ndefault: true\nfrom: python@3.11.x\nsources: [{pypi: polars}]\n"
    )
    mine = Library([tmp_path]).get("mine:1")
    assert mine.support == "custom", "nobody makes a recipe of their own a supported one"
    assert [source.items for source in mine.sources][-1] == ("polars",)
    (tmp_path / "theirs.yml").write_text("name: python\nversion: 3.11\n")
    with pytest.raises(Problem, match="is there already"):
        Library([tmp_path]).names()
    with pytest.raises(Problem, match="There is no directory"):
        Library([tmp_path / "no"]).names()


def test_one_file_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "runtime.yml").write_text("name: mine\nversion: 1\nfrom: pyton\n")
    with pytest.raises(Problem, match="There is no runtime 'pyton'"):
        Library().add(tmp_path / "runtime.yml")
    with pytest.raises(Problem, match="No such file"):
        Library().add(tmp_path / "missing.yml")


def of(*texts: str) -> Recipe:
    """The last one, with the others to inherit from."""
    recipes = {recipe.name: recipe for recipe in (schema.loads(text, "f") for text in texts)}
    return flatten(list(recipes.values())[-1], lambda name: recipes[name])


A = "name: a\nversion: 1\nenvironment: {X: a, PATH_PREPEND: /opt/a}\nrun: one\n"
B = "name: b\nversion: 1\nenvironment: {X: b, PATH_PREPEND: /opt/b}\nrun: two\n"


def test_the_child_decides_and_comes_first_on_the_path() -> None:
    child = of(A, "name: c\nversion: 1\nfrom: a\nenvironment: {X: c, Y: y, PATH_PREPEND: /opt/c}\nrun: three\n")
    assert dict(child.environment) == {"X": "c", "Y": "y"}
    assert child.path_prepend == ("/opt/c", "/opt/a")
    assert child.run == ("one", "three")


def test_parents_that_disagree_are_refused_until_the_child_decides() -> None:
    with pytest.raises(Problem, match="parents disagree on environment X"):
        of(A, B, "name: c\nversion: 1\nfrom: [a, b]\n")
    assert dict(of(A, B, "name: c\nversion: 1\nfrom: [a, b]\nenvironment: {X: c}\n").environment) == {"X": "c"}


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("requirements: {gpu_family: nvidia}", "requirements: {gpu_family: amd}", "combines GPU families"),
        ("requirements: {architecture: arm64}", "requirements: {architecture: amd64}", "no architecture"),
        ("python: bin/python3.11", "python: bin/python3.13", "different Pythons"),
        ("links: {bin/x: a}", "links: {bin/x: b}", "disagree on links"),
    ],
)
def test_what_cannot_be_combined(one: str, other: str, why: str) -> None:
    with pytest.raises(Problem, match=why):
        of(f"name: a\nversion: 1\n{one}\n", f"name: b\nversion: 1\n{other}\n", "name: c\nversion: 1\nfrom: [a, b]\n")


def test_circles_and_endless_lines_are_refused() -> None:
    with pytest.raises(Problem, match="inherits from itself"):
        of("name: a\nversion: 1\nfrom: b\n", "name: b\nversion: 1\nfrom: a\n")
    line = ["name: r0\nversion: 1\n", *(f"name: r{i}\nversion: 1\nfrom: r{i - 1}\n" for i in range(1, 12))]
    with pytest.raises(Problem, match="generations"):
        of(*line)
