"""Descriptors on a node: where operators look for them, in a place that is root's alone, and in one place only."""

import os
import stat
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import Ids
from gpuaas.node.config import AgentConfig
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes.descriptor import Descriptors, forget
from gpuaas.wire.node import RuntimeSpec

ID, OTHER = Ids().new("al"), Ids().new("al")
SPEC = RuntimeSpec("tool", "1.0", "0" * 64, 1)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "run", etc=tmp_path / "etc" / "gpuaas")


def test_the_agent_of_a_machine_writes_into_etc_and_a_second_one_into_its_own_state(tmp_path: Path) -> None:
    assert Paths(Path("/srv/gpuaas")).descriptors == Path("/etc/gpuaas/runtime/allocations")
    assert Paths(tmp_path, tmp_path / "run").descriptors == tmp_path / "runtime/allocations"
    assert Paths(tmp_path, tmp_path / "run", etc=tmp_path / "etc").descriptors == tmp_path / "etc/runtime/allocations"
    assert AgentConfig("http://localhost", tmp_path, "n1").run_dir == Paths().run


def test_only_root_reads_them_and_the_way_there_stays_open_for_others(paths: Paths, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Descriptors(paths).write_env_file(ID, [SPEC])
    finally:
        os.umask(before)
    file = tmp_path / "etc/gpuaas/runtime/allocations" / f"{ID}.env"
    assert "GPUAAS_RUNTIME_TOOL_VERSION='1.0'" in file.read_text()
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (file, file.parent, *file.parents[1:3])]
    assert modes == [0o600, 0o700, 0o755, 0o755]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("part", [".", "runtime", "runtime/allocations"])
def test_a_place_that_somebody_else_can_write_is_refused(paths: Paths, tmp_path: Path, part: str) -> None:
    place = tmp_path / "etc/gpuaas" / part
    place.mkdir(parents=True)
    place.chmod(0o775)
    with pytest.raises(HostError, match="nobody else can write; --etc-dir"):
        Descriptors(paths)


@pytest.mark.parametrize("part", ["runtime", "runtime/allocations"])
def test_a_link_is_not_followed(paths: Paths, tmp_path: Path, part: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "etc/gpuaas" / part
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError, match="real directory"):
        Descriptors(paths)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_an_older_agent_has_left_moves_once_and_is_not_kept_twice(paths: Paths, tmp_path: Path) -> None:
    older = Descriptors(Paths(tmp_path / "state", tmp_path / "run"))
    older.write_env_file(ID, [SPEC])
    older.write_env_file(OTHER, [SPEC])
    said = (tmp_path / "state/runtime/allocations" / f"{ID}.env").read_text()
    paths.descriptors.mkdir(parents=True)
    (paths.descriptors / f"{OTHER}.env").write_text("newer")  # written before the agent was killed

    newer = Descriptors(paths)
    assert newer.ids() == {ID, OTHER}
    assert (paths.descriptors / f"{ID}.env").read_text() == said
    assert (paths.descriptors / f"{OTHER}.env").read_text() == "newer"
    assert not (tmp_path / "state/runtime").exists()
    assert Descriptors(paths).ids() == {ID, OTHER}


def test_nothing_stays_in_etc_when_the_state_directory_is_deleted(paths: Paths, tmp_path: Path) -> None:
    Descriptors(paths).write_env_file(ID, [SPEC])
    forget(paths)
    assert list((tmp_path / "etc").iterdir()) == []


def test_files_of_others_in_etc_stay(paths: Paths, tmp_path: Path) -> None:
    Descriptors(paths).write_env_file(ID, [SPEC])
    (tmp_path / "etc/gpuaas/agent.env").touch()
    forget(paths)
    assert [each.name for each in (tmp_path / "etc/gpuaas").iterdir()] == ["agent.env"]
