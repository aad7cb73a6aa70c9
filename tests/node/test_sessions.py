"""Revocation when one session hangs in the kernel: cgroups are plain files here, so that one can be made to."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.cgroup import Cgroup
from gpuaas.node.host.cgroups.kill import kill_all
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.supervisor import news
from gpuaas.node.host.supervisor.plan import Plan
from gpuaas.node.host.supervisor.sessions import KEYS, SESSIONS, Session, Sessions
from node.samples import ID, USER


def stuck(cgroup: Cgroup) -> Path:
    """Something is in it that never ends. This process: nobody signals it, because it is not really in there."""
    (directory,) = cgroup.directories()
    directory.mkdir(parents=True)
    (directory / "cgroup.procs").write_text(str(os.getpid()))
    (directory / "cgroup.kill").touch()
    return directory


def sessions(tmp_path: Path, *names: str) -> tuple[Sessions, Cgroup]:
    """Named ones, as a supervisor finds them that takes over. All have the same key."""
    (tmp_path / "live").mkdir()
    (tmp_path / "news").mkdir()
    there = [Session(name, "192.0.2.1", time.time(), os.getpid(), "SHA256:one", USER) for name in names]
    (tmp_path / "live" / SESSIONS).write_bytes(msgspec.json.encode(there))
    (tmp_path / "live" / KEYS).write_bytes(msgspec.json.encode({"SHA256:one": USER}))
    live, told = str(tmp_path / "live"), str(tmp_path / "news")
    plan = Plan(ID, live, told, "", "", [], "", [], b"", 1.0, adopt=1)
    cgroup = Cgroup(Layout({}, tmp_path / "cgroup"), f"gpuaas/{ID}")
    return Sessions(plan, cgroup, end_seconds=0.2), cgroup


def closed(tmp_path: Path) -> set[str]:
    return {one.data["session"] for one in news.taken(tmp_path / "news") if one.kind == "session.closed"}


def test_a_session_that_hangs_keeps_no_other_of_a_revoked_key(tmp_path: Path) -> None:
    found, cgroup = sessions(tmp_path, "s1", "s2", "s3")
    hanging = stuck(cgroup.child("s1"))
    (tmp_path / "live" / KEYS).write_bytes(b"{}")
    with pytest.raises(HostError, match="do not end"):
        found.keys_changed()
    assert closed(tmp_path) == {"s2", "s3"}
    assert found.present() == 1, "the one that hangs is not forgotten"
    (hanging / "cgroup.procs").write_text("")
    assert found.keys_changed() == 1, "asked again, it is ended"
    assert closed(tmp_path) == {"s1", "s2", "s3"}
    assert found.present() == 0


def test_a_visitor_without_a_key_who_hangs_does_not_end_the_supervisor(tmp_path: Path) -> None:
    found, cgroup = sessions(tmp_path, "s1")
    (visitor,) = found._all.values()
    visitor.fingerprint, visitor.opened_at = "", 0.0
    stuck(cgroup.child("s1"))
    assert found.tidy(), "looked at again"


def test_all_are_told_to_end_before_any_is_waited_for(tmp_path: Path) -> None:
    machine = Cgroup(Layout({}, tmp_path), f"gpuaas/{ID}")
    cgroups = [machine.child(name) for name in ("s1", "s2", "s3")]
    directories = [stuck(cgroup) for cgroup in cgroups[:2]]
    begun = time.monotonic()
    assert set(kill_all(cgroups, timeout_seconds=1.0)) == {cgroup.path for cgroup in cgroups[:2]}
    assert time.monotonic() - begun < 2.0, "at the same time"
    assert [(directory / "cgroup.kill").read_text() for directory in directories] == ["1", "1"]
