"""Units and example files say only what the program knows."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpuaas.cli.main import cli

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def command(*words: str) -> click.Command:
    found: click.Command = cli
    for word in words:
        assert isinstance(found, click.Group)
        next_ = found.get_command(click.Context(found), word)
        assert next_ is not None, words
        found = next_
    return found


def options(found: click.Command) -> set[str]:
    return {name for parameter in found.params for name in parameter.opts}


def variables(found: click.Command) -> set[str]:
    return {str(parameter.envvar) for parameter in found.params if parameter.envvar}


def settings(name: str) -> dict[str, str]:
    lines = (DEPLOY / "example" / name).read_text().splitlines()
    return dict(line.lstrip("#").split("=", 1) for line in lines if re.match(r"#?[A-Z_]+=", line))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_there_is(unit: Path) -> None:
    (start,) = re.findall(r"^ExecStart=/usr/local/bin/gpuaas (.*)$", unit.read_text(), re.MULTILINE)
    words = [word for word in start.split() if re.fullmatch(r"[a-z]+", word)]
    found = command(*words)
    assert set(re.findall(r"--[a-z-]+", start)) <= options(found)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/usr/local/bin/gpuaas", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not said


def test_a_server_is_told_only_what_it_reads() -> None:
    known = variables(command("server")) | {"GPUAAS_HOST", "GPUAAS_PORT"}  # which the unit puts into its command
    assert set(settings("server.env")) <= known
    unit = (DEPLOY / "systemd" / "gpuaas-server.service").read_text()
    assert "${GPUAAS_HOST}" in unit
    assert "${GPUAAS_PORT}" in unit


def test_an_agent_is_told_only_what_it_reads() -> None:
    found = settings("agent.env")
    assert set(found) == {"GPUAAS_SERVER", "GPUAAS_AGENT_OPTIONS"}
    assert set(re.findall(r"--[a-z-]+", found["GPUAAS_AGENT_OPTIONS"])) <= options(command("agent", "run"))


def test_the_agents_machines_outlive_it() -> None:
    """systemd would otherwise end every supervisor with the agent's unit."""
    assert "KillMode=process" in (DEPLOY / "systemd" / "gpuaas-agent.service").read_text()
