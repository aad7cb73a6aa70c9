"""`gpuaas runtime` without a build: names, recipes, errors. Builds are in tests/runtimes/test_builds.py."""

import json
from pathlib import Path

import pytest

from cli.conftest import Gpuaas


def test_list_and_info(gpuaas: Gpuaas, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    listed = {item["runtime"]: item for item in gpuaas("runtime", "list", "--json", "--state-dir", state).json["items"]}
    assert listed["python:3.11+ml"]["state"] == "not built"
    assert listed["dotnet:8"]["state"] == "needs indexes of your site"
    assert listed["pytorch:2.13.0-cpu"]["default"] is True
    said = gpuaas("runtime", "list", "--state-dir", state).out
    assert "PyTorch Notebook" in said
    shown = gpuaas("runtime", "info", "python-3.11-ml", "--json", "--state-dir", state).json
    assert (shown["runtime"], shown["built"]) == ("python:3.11+ml", None)
    assert shown["root"] == "/opt/gpuaas/runtimes/python/3.11+ml"
    assert "scikit-learn" in gpuaas("runtime", "info", "python:3.11+ml", "--state-dir", state).out
    assert not (tmp_path / "state").exists(), "looking makes nothing"


@pytest.mark.parametrize("command", ["build", "info", "test", "verify"])
def test_an_unknown_name_is_refused_with_the_nearest(gpuaas: Gpuaas, tmp_path: Path, command: str) -> None:
    said = gpuaas("runtime", command, "python-3.11-nonexistent", "--state-dir", str(tmp_path / "state"))
    assert (said.code, said.out) == (4, "")
    assert "python:3.11" in said.err
    assert not (tmp_path / "state").exists()


def test_a_later_unknown_name_stops_before_any_work(gpuaas: Gpuaas, tmp_path: Path) -> None:
    assert gpuaas("runtime", "build", "node:18", "jvaa-all", "--state-dir", str(tmp_path / "state")).code == 4
    assert not (tmp_path / "state").exists()


def test_what_is_not_built(gpuaas: Gpuaas, tmp_path: Path) -> None:
    said = gpuaas("runtime", "test", "node:18", "--state-dir", str(tmp_path))
    assert said.code == 4
    assert "gpuaas runtime build node:18" in said.err
    assert gpuaas("runtime", "verify", "--state-dir", str(tmp_path)).code == 0
    assert gpuaas("runtime", "export", "node:18", str(tmp_path / "x"), "--state-dir", str(tmp_path)).code == 4


def test_a_recipe_of_ones_own(gpuaas: Gpuaas, tmp_path: Path) -> None:
    file = tmp_path / "mine" / "runtime.yml"
    file.parent.mkdir()
    file.write_text("name: mine\nversion: 1\nfrom: python@3.11.x\nsources:\n  - pypi: [polars]\n")
    said = gpuaas("runtime", "info", str(file), "--recipe").out
    assert "polars" in said
    assert "python3.11" in said, "with all that it inherits"
    listed = gpuaas("runtime", "list", "--json", "--recipes", str(file.parent.parent)).json["items"]
    assert [item["support"] for item in listed if item["runtime"] == "mine:1"] == ["custom"]
    file.write_text("name: mine\nversion: 1\nmounts:\n  - source: bin\n    target: /etc\n")
    said_wrong = gpuaas("runtime", "build", str(file), "--json")
    assert said_wrong.code == 2
    problem = json.loads(said_wrong.err)
    assert problem["code"] == "invalid_recipe"
    assert f"{file}:5: mounts[0].target" in problem["detail"]


def test_what_is_no_runtime_is_not_taken_in(gpuaas: Gpuaas, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"hello")
    said = gpuaas("runtime", "import", str(tmp_path / "x.tar"), "--state-dir", str(tmp_path / "state"))
    assert said.code == 2
    assert "no runtime" in said.err
