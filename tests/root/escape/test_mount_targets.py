"""T3 and T4, of what is mounted today: no path becomes a mount that is not exactly the path that was checked."""

import unicodedata
from dataclasses import replace
from pathlib import Path, PurePosixPath

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuaas.kit.errors import HostError
from gpuaas.node.host.container.boot import Boot, ReadOnlyBind, View, check
from gpuaas.node.host.container.config import config

ID = "al-" + "a" * 16
NAMESPACES = ("/proc/1/fd/3", "/proc/1/fd/4")
BOOT = Boot(ID, "machine", Path("/r/rootfs"), 1 << 20, *NAMESPACES, f"/gpuaas/{ID}", ("/init",), 1 << 20)
PARTS = st.sampled_from(["", ".", "..", "proc", "sys", "dev", "etc", "data", "a b", "\n", "\0", "ü", "\u202e", "%s"])
PATHS = st.one_of(
    st.text(max_size=40),
    st.lists(PARTS, max_size=6).map("/".join),
    st.lists(PARTS, max_size=6).map(lambda parts: "/" + "/".join(parts)),
)


@settings(max_examples=5000, deadline=None, database=None)
@given(PATHS, st.sampled_from([ReadOnlyBind, View]))
def test_a_target_is_what_it_says_or_refused(path: str, kind: type[ReadOnlyBind] | type[View]) -> None:
    place = {"binds": (kind("/s", path),)} if kind is ReadOnlyBind else {"views": (kind("/s", path),)}
    boot = replace(BOOT, **place)
    try:
        made = config(boot)
    except HostError:
        return
    check(boot)
    parts = PurePosixPath(path).parts
    assert path == "/" + "/".join(parts[1:])
    assert len(parts) > 1
    assert ".." not in parts
    assert parts[1] not in ("proc", "sys", "dev")
    assert not any(unicodedata.category(char).startswith("C") for char in path)
    assert made["mounts"][-1]["destination"] == path


@settings(max_examples=500, deadline=None, database=None)
@given(PATHS)
def test_a_source_and_a_tree_too(path: str) -> None:
    for boot in (replace(BOOT, binds=(ReadOnlyBind(path, "/data"),)), replace(BOOT, rootfs=Path(path or "."))):
        try:
            config(boot)
        except (HostError, ValueError):
            continue
        found = boot.binds[0].source if boot.binds else str(boot.rootfs)
        assert found.startswith("/")
        assert ".." not in PurePosixPath(found).parts
        assert not found.startswith("//")
