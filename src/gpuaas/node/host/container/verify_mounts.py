"""The mounts of a started machine against those that were asked for: each once, with its flags, and no other."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpuaas.node.host.container.boot import Boot
from gpuaas.node.host.container.hidden import MASKED, READ_ONLY
from gpuaas.node.host.container.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute, Mount, at

DEVICE_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_CGROUPS = "/sys/fs/cgroup"
_ATTRIBUTES = {"ro": Attribute.READ_ONLY, "rro": Attribute.READ_ONLY, "nosuid": Attribute.NOSUID}
_ATTRIBUTES |= {"nodev": Attribute.NODEV, "noexec": Attribute.NOEXEC}
# A hook of NVIDIA's puts a copy there, so that the driver does not make nodes itself.
_OF_HOOKS = frozenset({"/proc/driver/nvidia/params"})


def differences(boot: Boot, table: list[Mount]) -> list[str]:
    return [
        *_root(table),
        *(text for wanted in mounts(boot) for text in _wanted(wanted, table)),
        *(text for path in MASKED for text in _masked(path, table)),
        *(text for path in READ_ONLY for text in _read_only(path, table)),
        *(text for name in DEVICE_NODES for text in _device(f"/dev/{name}", name, table)),
        *_others(boot, table),
    ]


def _root(table: list[Mount]) -> Iterator[str]:
    root = at("/", table)
    if root is None or not root.attributes & Attribute.NODEV:
        yield "its root is not nodev"
    yield from (f"mounts on {each.target} leave the machine" for each in table if _is_shared(each))


def _wanted(wanted: dict[str, Any], table: list[Mount]) -> Iterator[str]:
    target, kind, options = wanted["destination"], wanted["type"], wanted["options"]
    attributes = Attribute(0)
    for option in options:
        attributes |= _ATTRIBUTES.get(option, Attribute.NONE)
    present = at(target, table)
    if present is None:
        yield f"nothing is mounted on {target}"
        return
    if kind == "cgroup":
        # On v1 the hierarchies are mounted below a tmpfs of the machine's own, which runc leaves writable.
        hierarchies = [each for each in table if each.filesystem in ("cgroup", "cgroup2")]
        yield from (text for each in hierarchies for text in _flags(each, attributes))
        return
    if kind != "bind" and present.filesystem != kind:
        yield f"a {present.filesystem} is mounted on {target}, not a {kind}"
    yield from _flags(present, attributes)
    if kind == "bind":
        # Also what came along from below it, or has been mounted since.
        yield from (text for each in table if _is_below(each.target, target) for text in _flags(each, attributes))
    if "rslave" in options and not any(each.startswith("master:") for each in present.propagation):
        yield f"what is mounted in {target} later does not arrive"


def _masked(path: str, table: list[Mount]) -> Iterator[str]:
    present = at(path, table)
    if present is None:
        # What one kernel has, it has in every mount of its file systems: so the host's says whether it is there.
        if os.path.lexists(path):
            yield f"{path} is not hidden"
    elif present.filesystem == "tmpfs" and present.root == "/":
        yield from _flags(present, Attribute.READ_ONLY)
    else:
        yield from _device(path, "null", table)


def _read_only(path: str, table: list[Mount]) -> Iterator[str]:
    present = at(path, table)
    if present is not None:
        yield from _flags(present, Attribute.READ_ONLY)
    elif os.path.lexists(path):
        yield f"{path} is writable"


def _device(path: str, name: str, table: list[Mount]) -> Iterator[str]:
    """A bind of the host's node: nobody else's, and not a file that a tenant put in its place (CVE-2025-31133)."""
    present = at(path, table)
    host = os.stat(f"/dev/{name}").st_dev
    if present is None or (present.device, present.root) != (f"{os.major(host)}:{os.minor(host)}", f"/{name}"):
        yield f"{path} is not the host's /dev/{name}"


def _others(boot: Boot, table: list[Mount]) -> Iterator[str]:
    known = {each["destination"] for each in mounts(boot)} | {"/", *MASKED, *READ_ONLY}
    known |= {f"/dev/{name}" for name in DEVICE_NODES} | (_OF_HOOKS if boot.gpus.hooks else set())
    trees = [_CGROUPS, *(each["destination"] for each in mounts(boot) if each["type"] == "bind")]
    for target, times in Counter(each.target for each in table).items():
        below = any(_is_below(target, tree) for tree in trees)
        if target not in known and not below:
            yield f"something is mounted on {target}"
        # One mount on another hides it: then its flags say nothing.
        elif times > 1 and not below:
            yield f"{times} mounts are on {target}"


def _flags(present: Mount, wanted: Attribute) -> Iterator[str]:
    held = present.attributes | (Attribute.READ_ONLY if "ro" in present.super_options else Attribute.NONE)
    if missing := wanted & ~held:
        names = [name for name, each in _ATTRIBUTES.items() if each & missing and name != "rro"]
        yield f"{present.target} is not {', '.join(names)}"


def _is_shared(mount: Mount) -> bool:
    return any(each.startswith("shared:") for each in mount.propagation)


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/")
