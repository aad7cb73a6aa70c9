"""`gpuaas runtime` without a build: names, recipes, errors. Builds are in tests/runtimes/test_builds.py."""

import json
import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Gpuaas
from gpuaas.cli import output
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.runtime_chosen import chosen
from gpuaas.runtimes import tools
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.settings import Index, Settings
from gpuaas.runtimes.shelf import Shelf
from runtimes.bundle import Bundle, for_arm64
from sdk import samples
from sdk.playback import Answer, Playback, problem


@pytest.mark.acceptance("RT05")
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


@pytest.mark.acceptance("D01", "RT04")
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


@pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="not installed: erofs-utils")
def test_one_that_is_damaged_does_not_hide_the_others(gpuaas: Gpuaas, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "state" / "runtimes")
    for name in ("one", "other", "third"):
        file = Bundle(tmp_path / name, name).write(tmp_path / f"{name}.tar")
        assert gpuaas("runtime", "import", str(file), "--state-dir", str(tmp_path / "state")).code == 0
    (shelf.bundle("other", "1.0") / str(shelf.built("other", "1.0")) / "manifest.json").write_text("{")
    (shelf.bundle("third", "1.0") / f"built-{tools.architecture()}").write_text("")
    said = gpuaas("runtime", "verify", "--json", "--state-dir", str(tmp_path / "state"))
    assert said.code == 1
    assert [(each["runtime"], each["intact"], each["findings"]) for each in said.json["items"]] == [
        ("one:1.0", True, []),
        ("other:1.0", False, ["manifest.json was changed"]),
        ("third:1.0", False, ["the note `built` names no image"]),
    ]
    shown = gpuaas("runtime", "test", "other", "--state-dir", str(tmp_path / "state"))
    assert (shown.code, "other:1.0 is damaged: manifest.json cannot be read" in shown.err) == (5, True), shown.err


@pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="not installed: erofs-utils")
def test_a_version_that_is_here_for_both_architectures(gpuaas: Gpuaas, tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    for made in (for_arm64(tmp_path / "arm64"), Bundle(tmp_path / "amd64")):
        file = made.write(tmp_path / f"{made.lock.architecture}.tar")
        said = gpuaas("runtime", "import", str(file), *state)
        assert f"tool:1.0 for {made.lock.architecture} is here" in said.out, said.err
    listed = [each for each in gpuaas("runtime", "list", *state, "--json").json["items"] if each["sha256"]]
    assert [(each["runtime"], each["architecture"]) for each in listed] == [
        ("tool:1.0", "amd64"),
        ("tool:1.0", "arm64"),
    ]
    verified = gpuaas("runtime", "verify", "tool", *state, "--json").json["items"]
    assert [(each["architecture"], each["intact"]) for each in verified] == [("amd64", True), ("arm64", True)]
    for options, architecture in (((), tools.architecture()), (("--architecture", "arm64"), "arm64")):
        target = str(tmp_path / "out.tar")
        assert gpuaas("runtime", "export", "tool:1.0", target, *options, *state, "--json").json["architecture"] == (
            architecture
        )
    refused = gpuaas("runtime", "export", "tool:1.0", str(tmp_path / "x"), "--architecture", "riscv64", *state)
    assert (refused.code, (tmp_path / "x").exists()) == (2, False)


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


ON = "/api/v1/allocations/train-1/runtime-bundles"
FOLLOW = "/api/v1/operations/op-aaaaaaaaaaaaaaaa/follow"


def accepted(server: Playback, method: str, path: str, kind: str, state: str = "succeeded") -> None:
    server.on(
        method, path, Answer(202, {"allocation": samples.allocation(), "operation": samples.operation(kind=kind)})
    )
    over = json.dumps(samples.operation(state, kind=kind))
    frames = (f"event: operation\ndata: {over}\n\n".encode(),)
    server.on("GET", FOLLOW, Answer(chunks=frames, headers={"Content-Type": "text/event-stream"}))
    server.on("GET", "/api/v1/allocations/al-aaaaaaaaaaaaaaaa", Answer(200, samples.allocation()))


VERSION = {"bundle_id": "rb-aaaaaaaaaaaaaaaa", "digest": "0" * 64, "root": "/x", "state": "applying",
           "current": False, "observed": "fetching", "percent": 40, "message": "", "applied_at": None,
           "applied_by": "us-x", "operation_id": "op-x"}  # fmt: skip


def on(versions: list[dict[str, Any]]) -> dict[str, Any]:
    """What a machine has: the first version is wanted."""
    item = {"slug": "pytorch", "product": "PyTorch", "support": "supported", "desired_version": versions[0]["version"],
            "current_version": "1", "previous_version": "1", "state": "applying", "activate": "source x",
            "versions": versions, "allowed_actions": []}  # fmt: skip
    ownership = {"platform": [], "user": [], "statement": "Yours is yours."}
    return {"items": [item], "next_cursor": None, "ownership": ownership}


def current(version: str) -> list[dict[str, Any]]:
    return [{**VERSION, "version": version, "current": True, "operation_id": "op-aaaaaaaaaaaaaaaa"}]


SAID = {"apply": "has pytorch:2-r3.", "use": "uses pytorch:2-r3.", "rollback": "is back at pytorch:2-r3.",
        "repair": "has pytorch as it should be.", "remove": "is without pytorch."}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (("apply", "train-1", "pytorch"), "POST", ON, {"runtime_bundle_slug": "pytorch"}),
        (
            ("apply", "train-1", "pytorch", "--version", "2", "--replace", "ray"), "POST", ON,
            {"runtime_bundle_slug": "pytorch", "version": "2", "replace": "ray"},
        ),
        (("use", "train-1", "python:3.11+ml"), "POST", ON, {"runtime_bundle_slug": "python:3.11+ml"}),
        (("rollback", "train-1", "pytorch"), "POST", f"{ON}/pytorch/rollback", {}),
        (("rollback", "train-1", "pytorch", "--version", "1"), "POST", f"{ON}/pytorch/rollback", {"version": "1"}),
        (("repair", "train-1", "pytorch"), "POST", f"{ON}/pytorch/repair", None),
        (("remove", "train-1", "pytorch"), "DELETE", f"{ON}/pytorch", None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_changes_on_a_machine(
    gpuaas: Gpuaas, server: Playback, arguments: tuple[str, ...], method: str, path: str, body: object
) -> None:
    accepted(server, method, path, f"runtime.{arguments[0]}")
    server.on("GET", "/api/v1/allocations/al-aaaaaaaaaaaaaaaa/runtime-bundles", Answer(200, on(current("2-r3"))))
    said = gpuaas("runtime", *arguments)
    assert said.code == 0, said.err
    assert said.out.startswith(f"train-1 {SAID[arguments[0]]}")
    (asked,) = server.to(method, path)
    assert (json.loads(asked.body) if asked.body else None) == body
    detached = gpuaas("runtime", *arguments, "--detach", "--json")
    assert detached.json["operation"]["id"] == "op-aaaaaaaaaaaaaaaa"


@pytest.mark.parametrize("command", ["rollback", "repair", "remove"])
def test_a_version_where_a_bundle_is_meant(gpuaas: Gpuaas, server: Playback, command: str) -> None:
    said = gpuaas("runtime", command, "train-1", "python@3.11+ml")
    assert said.code == 2
    assert "'python@3.11+ml' is a version, and a bundle is meant here." in said.err
    assert ("Say `python --version 3.11+ml`." if command == "rollback" else "Say `python`.") in said.err
    assert server.asked == []


def test_who_may_not_look_is_told_what_they_asked_for(gpuaas: Gpuaas, server: Playback) -> None:
    accepted(server, "POST", ON, "runtime.apply")
    refused = problem(403, "forbidden")
    server.on("GET", "/api/v1/allocations/al-aaaaaaaaaaaaaaaa/runtime-bundles", refused)
    said = gpuaas("runtime", "apply", "train-1", "pytorch@2.x")
    assert (said.code, said.out) == (0, "train-1 has pytorch@2.x.\n")


def test_a_runtime_that_could_not_be_applied(gpuaas: Gpuaas, server: Playback) -> None:
    accepted(server, "POST", ON, "runtime.apply", "failed")
    said = gpuaas("runtime", "apply", "train-1", "pytorch")
    assert said.code != 0
    assert "The node's disk is full." in said.err


def test_the_catalog(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", "/api/v1/runtime-bundles", Answer(200, samples.page(samples.runtime_bundle())))
    server.on("GET", "/api/v1/runtime-bundles/pytorch", Answer(200, samples.runtime_bundle()))
    server.on("GET", "/api/v1/runtime-bundles/pytorch/versions", Answer(200, samples.page(samples.runtime_bundle())))
    listed = gpuaas("runtime", "list", "--catalog")
    assert "pytorch:2.13.0-cpu (default)" in listed.out
    assert gpuaas("runtime", "list", "--catalog", "--json").json["items"][0]["slug"] == "pytorch"
    shown = gpuaas("runtime", "info", "--catalog", "pytorch").out
    assert "/opt/gpuaas/runtimes/pytorch/2.13.0-cpu" in shown
    assert "17.2 GB" in shown, "what it should have, not only what it must have"
    server.on("POST", "/api/v1/runtime-bundles/pytorch/deprecate",
              Answer(200, samples.runtime_bundle(state="deprecated")))  # fmt: skip
    assert "pytorch:2.13.0-cpu is deprecated." in gpuaas("runtime", "deprecate", "pytorch").out


def test_the_images_of_the_catalog_are_verified(gpuaas: Gpuaas, server: Playback) -> None:
    """All of them without a name. One that is not as it should be is named with what to do."""
    found = {"bundle_id": "rb-aaaaaaaaaaaaaaaa", "name": "pytorch:2.13.0-cpu", "digest": "0" * 64, "size_bytes": 5}
    server.on("GET", "/api/v1/runtime-bundles", Answer(200, samples.page(samples.runtime_bundle())))
    each = f"/api/v1/runtime-bundles/{samples.runtime_bundle()['id']}/verify"
    server.on("POST", each, Answer(200, {**found, "state": "intact"}))
    said = gpuaas("runtime", "verify", "--catalog")
    assert (said.code, "intact" in said.out, said.err) == (0, True, "")
    server.on("POST", "/api/v1/runtime-bundles/pytorch/verify", Answer(200, {**found, "state": "damaged"}))
    bad = gpuaas("runtime", "verify", "pytorch", "--catalog", "--json")
    assert (bad.code, bad.json["items"][0]["state"]) == (1, "damaged")
    assert "gpuaas runtime deploy pytorch:2.13.0-cpu" in bad.err


def test_a_machines_images_are_verified_by_repairing_them(gpuaas: Gpuaas, server: Playback) -> None:
    accepted(server, "POST", f"{ON}/pytorch/repair", "runtime.repair")
    said = gpuaas("runtime", "verify", "pytorch", "--on", "train-1")
    assert (said.code, said.out) == (0, "train-1 has pytorch as it should be.\n")
    assert gpuaas("runtime", "verify", "pytorch", "ray", "--on", "train-1").code == 2
    ownership = {"platform": [], "user": [], "statement": ""}
    server.on("GET", ON, Answer(200, {"items": [], "next_cursor": None, "ownership": ownership}))
    assert "has no managed runtime" in gpuaas("runtime", "verify", "--on", "train-1").err


def test_what_a_machine_has(gpuaas: Gpuaas, server: Playback) -> None:
    version = VERSION
    there = {"current": True, "applied_at": samples.AT, "applied_by": "us-y", "applied_by_email": "ada@example.org"}
    versions = [{**version, "version": "2"}, {**version, "version": "1"} | there, {**version, "version": "0"}]
    server.on("GET", ON, Answer(200, on(versions)))
    said = gpuaas("runtime", "list", "--on", "train-1")
    assert "1 -> 2" in said.out
    assert "fetching 40 %" in said.out
    assert "ada@example.org" in said.out
    assert output.moment(datetime.fromisoformat(samples.AT)) in said.out
    assert "us-x" not in said.out, "who applied what is there, not who wants another"
    assert "Yours is yours." in said.err
    change = {"id": "ar-x", "action": "apply", "slug": "pytorch", "version": "2", "digest": "", "replaces": None,
              "previous_version": "1", "state": "applied", "message": "", "asked_by": "us-ada", "ended_by": None,
              "asked_at": samples.AT, "applied_at": None, "ended_at": None, "operation_id": "op-x"}  # fmt: skip
    named = {**change, "asked_by": "us-bob", "asked_by_email": "bob@example.com"}
    server.on("GET", f"{ON}/history", Answer(200, samples.page(change, named)))
    shown = gpuaas("runtime", "history", "train-1").out
    assert "us-ada" in shown  # of a server that does not say more
    assert "bob@example.com" in shown
    assert "us-bob" not in shown
    assert "pytorch:2" in shown


@pytest.mark.parametrize("flag", ["--pyhton-all", "--python-3.14-ml", "nodejs", "--relok"])
def test_deploy_refuses_what_is_unknown_before_any_work(
    gpuaas: Gpuaas, server: Playback, tmp_path: Path, flag: str
) -> None:
    said = gpuaas("runtime", "deploy", "--node-18", flag, "--state-dir", str(tmp_path / "state"))
    assert said.code == 4
    assert "There is no runtime" in said.err
    assert server.asked == []
    assert not (tmp_path / "state").exists()


def test_deploy_needs_names_and_an_operator(gpuaas: Gpuaas, server: Playback, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    assert gpuaas("runtime", "deploy", "--state-dir", state).code == 2
    user = {"id": "us-x", "email": "ada@example.org", "name": "Ada", "platform_role": None, "created_at": samples.AT}
    who = {"user": {**user, "disabled_at": None, "kind": "person"}, "token_id": "tk-x", "scopes": ["*"], "orgs": [],
           "projects": []}  # fmt: skip
    server.on("GET", "/api/v1/whoami", Answer(200, who))
    said = gpuaas("runtime", "deploy", "--node-18", "--state-dir", state)
    assert said.code == 3
    assert "no operator" in said.err
    assert not (tmp_path / "state").exists()


ELSEWHERE = {  # what public registries do not have: the index that each needs
    "python:3.12": "ubuntu",
    "dotnet:8": "microsoft",
    "cuda-dev:12.6": "nvidia",
    "rocm-dev:6.4": "amd",
    "vllm:0": "pytorch-cuda",
    "pytorch:2.13.0-cu126": "pytorch-cuda",
    "pytorch:2.13.0-rocm6.4": "pytorch-rocm",
}


def test_every_shipped_name_and_family_is_a_flag() -> None:
    """A family is all of it: what is built, and what is left out with its reason."""
    names = Library().names()
    for name in names:
        assert [each.id for each in chosen((f"--{name.dashed}",), False, (), Settings()).recipes] == [name.id]
    for bundle in {name.bundle for name in names}:
        members = {name.id for name in names if name.bundle == bundle}
        if members <= set(ELSEWHERE):
            with pytest.raises(Invalid) as refused:
                chosen((f"--{bundle}-all",), False, (), Settings())
            assert all(f"{id}: " in (refused.value.hint or "") for id in members)
            assert all(ELSEWHERE[id] in (refused.value.hint or "") for id in members)
            continue
        found = chosen((f"--{bundle}-all",), False, (), Settings())
        assert {each.id for each in found.recipes} == members - set(ELSEWHERE)
        assert set(found.left) == members & set(ELSEWHERE)
    every = chosen((), True, (), Settings())
    assert {each.id for each in every.recipes} == {name.id for name in names} - set(ELSEWHERE)
    assert {id: ELSEWHERE[id] in why for id, why in every.left.items()} == dict.fromkeys(ELSEWHERE, True)


def test_a_site_with_the_index_builds_the_whole_family() -> None:
    site = Settings(indexes=(Index("ubuntu", "http://ubuntu.example.org"), Index("microsoft", "/srv/microsoft")))
    found = chosen(("--python-all", "--dotnet-all"), False, (), site)
    assert {"python:3.12", "dotnet:8"} <= {each.id for each in found.recipes}
    assert found.left == {}


@pytest.mark.parametrize("command", ["build", "deploy"])
def test_a_family_that_cannot_be_built_here_fails_with_reasons(gpuaas: Gpuaas, tmp_path: Path, command: str) -> None:
    for family in ("dotnet", "vllm", "cuda-dev", "rocm-dev"):
        said = gpuaas("runtime", command, f"{family}-all", "--state-dir", str(tmp_path / "state"))
        assert (said.code, said.out) == (2, "")
        assert "it needs an index of your site called" in said.err
    assert not (tmp_path / "state").exists()


def _nowhere(tmp_path: Path) -> str:
    """Settings of a site without any registry that answers."""
    file = tmp_path / "settings.yml"
    file.write_text(f"""
pypi_index: {tmp_path}/no-pypi
npm_registry: {tmp_path}/no-npm
debian_mirror: {tmp_path}/debian
debian_security_mirror: {tmp_path}/debian
""")
    (tmp_path / "debian").mkdir()
    return str(file)


def test_what_cannot_be_reached_is_found_out_before_any_work(gpuaas: Gpuaas, tmp_path: Path) -> None:
    """What was named must be possible; of a family the rest is made, and the end is not a success."""
    state, settings = tmp_path / "state", _nowhere(tmp_path)
    asked = ("runtime", "build", "java:17", "node:18", "--state-dir", str(state))
    named = gpuaas(*asked, GPUAAS_RUNTIME_SETTINGS=settings)
    assert (named.code, "no-npm" in named.err) == (6, True)
    assert not state.exists(), "nor was the first of them begun"
    family = gpuaas("runtime", "build", "node-all", "python-all", "--state-dir", str(state), "--json",
                    GPUAAS_RUNTIME_SETTINGS=settings)  # fmt: skip
    assert (family.code, family.json["items"]) == (1, [])
    assert "python:3.12 is left out: public registries do not have it" in family.err
    for id in ("node:18", "node:22", "python:3.11+ml"):
        assert f"{id} is left out: There is no" in family.err, id


def test_one_that_fails_does_not_keep_others_from_being_made(gpuaas: Gpuaas, tmp_path: Path) -> None:
    """Each is told, and the end is not a success."""
    recipes, settings = tmp_path / "recipes", _nowhere(tmp_path)
    recipes.mkdir()
    for name in ("mine", "yours"):
        (recipes / f"{name}.yml").write_text(f"name: {name}\nversion: 1\nsources: [{{deb: [x], suite: bookworm}}]\n")
    state = str(tmp_path / "state")
    said = gpuaas("runtime", "build", "mine", "yours", "--recipes", str(recipes), "--state-dir", state,
                  GPUAAS_RUNTIME_SETTINGS=settings)  # fmt: skip
    assert said.code == 1
    assert "2 of 2 could not be made: mine:1, yours:1." in said.err


def test_the_script_passes_its_flags_on(gpuaas: Gpuaas, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "deploy_runtimes.sh"
    bare = subprocess.run([script], capture_output=True, text=True, check=False, env=gpuaas.environment)
    assert (bare.returncode, "--python-all" in bare.stderr) == (2, True)
    wrong = [script, "--all", "--nodejs", "--state-dir", str(tmp_path / "state")]
    refused = subprocess.run(wrong, capture_output=True, text=True, check=False, env=gpuaas.environment)
    assert refused.returncode == 4
    assert "nodejs" in refused.stderr
    assert not (tmp_path / "state").exists()


def test_gc_lists_and_with_yes_removes(gpuaas: Gpuaas, server: Playback) -> None:
    item = {"digest": "a" * 64, "size_bytes": 3 * 2**30, "kind": "image", "name": "torch:1"}
    found = {"items": [item], "next_cursor": None, "size_bytes": 3 * 2**30}
    server.on("GET", "/api/v1/runtime-images/unused", Answer(200, found))
    server.on("POST", "/api/v1/runtime-images/collect", Answer(200, found))
    listed = gpuaas("runtime", "gc")
    assert listed.code == 0
    assert "torch:1" in listed.out
    assert "3.0G can be freed" in listed.err
    assert server.to("POST", "/api/v1/runtime-images/collect") == []
    removed = gpuaas("runtime", "gc", "--yes", "--older-than", "7d")
    assert "3.0G are free again" in removed.err
    (asked,) = server.to("POST", "/api/v1/runtime-images/collect")
    assert json.loads(asked.body) == {"older_than_seconds": 7 * 86400}
    assert gpuaas("runtime", "gc", "--older-than", "5m").code == 2


def test_gc_of_this_machine(gpuaas: Gpuaas, server: Playback, tmp_path: Path) -> None:
    log = tmp_path / "runtimes" / "logs" / "old.log"
    log.parent.mkdir(parents=True)
    log.write_text("12345")
    os.utime(log, (0, 0))
    listed = gpuaas("runtime", "gc", "--local", "--json", "--state-dir", str(tmp_path))
    assert [item["path"] for item in listed.json["items"]] == [str(log)]
    assert log.exists()
    assert "5B are free again" in gpuaas("runtime", "gc", "--local", "--yes", "--state-dir", str(tmp_path)).err
    assert not log.exists()
    assert server.asked == []
