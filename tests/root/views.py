"""What a machine sees of its runtimes, looked at from the host through its first process."""

from pathlib import Path

from gpuaas.node.host.runtimes.descriptor import INSIDE as DESCRIPTOR
from gpuaas.node.host.runtimes.views import CURRENT, INSIDE
from gpuaas.wire.node import Condition, RuntimeSpec


def is_whole(pid: int) -> dict[str, bool]:
    """Every version that is there, and whether it is the current one. A link that names nothing whole is an error."""
    found = {}
    for bundle in _root(pid, INSIDE).iterdir():
        link = bundle / CURRENT
        current = str(link.readlink()) if link.is_symlink() else ""
        if current:
            assert (bundle / current / "lib/data").is_file(), f"current names {current}, which is not there"
        for version in (each for each in bundle.iterdir() if each.is_dir() and not each.is_symlink()):
            found[f"{bundle.name}/{version.name}"] = version.name == current
    return found


def shows(pid: int, wanted: list[RuntimeSpec]) -> None:
    """Exactly these, each mounted once, and the descriptor says so too."""
    there = is_whole(pid)
    assert there == {f"{each.bundle}/{each.version}": each.current for each in wanted}, f"it sees {there}"
    for each in wanted:
        said = (_root(pid, INSIDE) / each.bundle / each.version / "lib/data").read_text()
        assert said == each.version, f"{each.version} says {said}"
    table = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    mounted = sorted(line.split()[4] for line in table if line.split()[4].startswith(f"{INSIDE}/"))
    assert mounted == sorted(f"{INSIDE}/{each.bundle}/{each.version}" for each in wanted), f"mounted: {mounted}"
    text = (_root(pid, DESCRIPTOR) / "runtime.env").read_text()
    listed = [each.version for each in wanted if f"_VERSION='{each.version}'\n" in text]
    assert listed == [each.version for each in wanted if each.current], f"the descriptor lists {listed}"


def is_told(condition: Condition, wanted: list[RuntimeSpec]) -> None:
    told = [(each.version, each.state, each.current) for each in condition.runtimes]
    assert told == [(each.version, "ready", each.current) for each in wanted], f"reported: {condition.runtimes}"


def _root(pid: int, path: str) -> Path:
    return Path(f"/proc/{pid}/root{path}")
