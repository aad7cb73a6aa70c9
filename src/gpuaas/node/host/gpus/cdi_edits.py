"""From the GPUs of an allocation to what its OCI spec gets: device nodes and cgroup rules, mounts, environment, hooks.

A spec may be older than the last boot, and GPUs may come up in another order. So every node is looked at on the host
now, and a device whose nodes are not exactly this GPU's is refused.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus.cdi import ContainerEdits, DeviceNode, Hook, Mount
from gpuaas.node.host.gpus.cdi_read import Entry, Library, check_program
from gpuaas.node.host.gpus.gpu import Gpu

# A device with this annotation is numbered anew in each container: its paths end in its number on the host.
# Only simulated GPUs: NVIDIA's own library finds its nodes by the number that they have on the host.
INDEX = "gpuaas.dev/index"
_LAST_NUMBER = re.compile(r"\d+\Z")
_MEMORY_MAJOR = 1


@dataclass(frozen=True)
class Node:
    path: str
    host_path: str
    major: int
    minor: int
    access: str
    mode: int
    uid: int
    gid: int


_Thing = TypeVar("_Thing", Node, Mount)


@dataclass(frozen=True)
class Edits:
    """In the order of the GPUs. Nothing twice."""

    env: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    gids: tuple[int, ...] = ()


@dataclass(frozen=True)
class OciEdits:
    """Fragments for config.json, to be appended. `rules` presume that the spec first denies everything."""

    env: list[str]  # process.env
    devices: list[dict[str, Any]]  # linux.devices
    rules: list[dict[str, Any]]  # linux.resources.devices
    mounts: list[dict[str, Any]]  # mounts; they come after the one of /dev
    hooks: dict[str, list[dict[str, Any]]]
    gids: list[int]  # process.user.additionalGids


def resolve(library: Library, gpus: Sequence[Gpu]) -> Edits:
    """`gpus` in the order in which the container counts them."""
    env: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    mounts: dict[str, Mount] = {}
    hooks: list[Hook] = []
    gids: list[int] = []
    seen: set[str] = set()
    for position, gpu in enumerate(gpus):
        entry = _entry(library, gpu)
        shift = _shift(entry, position)
        own = entry.device.container_edits
        _check_own(entry, gpu)
        shared = [] if entry.file in seen else [(entry.spec.container_edits, 0)]
        seen.add(entry.file)
        for edits, by in (*shared, (own, shift)):
            env.update(dict(item.split("=", 1) for item in edits.env))
            for node in _nodes(edits, by):
                _once(nodes, node.path, node, gpu)
            for mount in edits.mounts:
                moved = _moved(mount.container_path, by)
                _once(mounts, moved, Mount(mount.host_path, moved, mount.options, "bind"), gpu)
            hooks.extend(hook for hook in edits.hooks if hook not in hooks)
            gids.extend(gid for gid in edits.additional_gids if gid and gid not in gids)
    env.update(_visible(gpus))
    for hook in hooks:
        check_program(hook.path)
    return Edits(
        tuple(f"{name}={value}" for name, value in env.items()),
        tuple(nodes.values()),
        tuple(mounts.values()),
        tuple(hooks),
        tuple(gids),
    )


def oci(edits: Edits, *, user_namespace: bool = True) -> OciEdits:
    """In a user namespace no node can be made, and runc would bind the host's node of the *container's* path: so the
    right ones are bound as files. Such a bind must not be `nodev`, and neither must the file system of its source.
    """
    devices, binds = [], []
    for node in edits.nodes:
        if user_namespace:
            options = ["bind", "rw", "nosuid", "noexec", "rprivate"]
            binds.append({"destination": node.path, "type": "bind", "source": node.host_path, "options": options})
        else:
            place = {"path": node.path, "type": "c", "major": node.major, "minor": node.minor}
            devices.append(place | {"fileMode": node.mode, "uid": node.uid, "gid": node.gid})
    rules = [
        {"allow": True, "type": "c", "major": node.major, "minor": node.minor, "access": node.access}
        for node in {(node.major, node.minor): node for node in edits.nodes}.values()
    ]
    mounts = [
        {
            "destination": mount.container_path,
            "type": "bind",
            "source": mount.host_path,
            "options": mount.options if {"bind", "rbind"} & set(mount.options) else [*mount.options, "bind"],
        }
        for mount in edits.mounts
    ]
    hooks: dict[str, list[dict[str, Any]]] = {}
    for hook in edits.hooks:
        made: dict[str, Any] = {"path": hook.path, "args": hook.args, "env": hook.env}
        hooks.setdefault(hook.hook_name, []).append(made | ({"timeout": hook.timeout} if hook.timeout else {}))
    return OciEdits(list(edits.env), devices, rules, binds + mounts, hooks, list(edits.gids))


def _entry(library: Library, gpu: Gpu) -> Entry:
    for name in gpu.cdi:
        if name in library.devices:
            return library.devices[name]
    why = "; ".join(f"{what}: {reason}" for what, reason in library.refused.items())
    cause = f"no CDI spec has it ({why})" if why else "no CDI spec has it"
    raise HostError("resolve", gpu.uuid, cause, transient=False)


def _shift(entry: Entry, position: int) -> int:
    index = entry.device.annotations.get(INDEX, "")
    return position - int(index) if index.isdecimal() else 0


def _check_own(entry: Entry, gpu: Gpu) -> None:
    """Of each family of numbered nodes the device has exactly those that are this GPU's."""
    families = {_LAST_NUMBER.sub("", path) for path in gpu.nodes}
    paths = {node.host_path or node.path for node in entry.device.container_edits.device_nodes}
    given = {path for path in paths if _LAST_NUMBER.sub("", path) in families}
    if not gpu.nodes or given != set(gpu.nodes):
        cause = f"{entry.file} gives it {', '.join(sorted(given)) or 'nothing'}, but it is {', '.join(gpu.nodes)}"
        raise HostError("resolve", gpu.uuid, f"{cause}; write the spec again", transient=False)


def _nodes(edits: ContainerEdits, by: int) -> Iterable[Node]:
    for node in edits.device_nodes:
        yield _node(node, _moved(node.path, by))


def _node(node: DeviceNode, path: str) -> Node:
    host_path = node.host_path or node.path
    try:
        info = os.lstat(host_path)
    except OSError as error:
        raise HostError("resolve", host_path, error.strerror or str(error)) from error
    major, minor = os.major(info.st_rdev), os.minor(info.st_rdev)
    if not stat.S_ISCHR(info.st_mode) or major == _MEMORY_MAJOR:
        raise HostError("resolve", host_path, "it is not a device that may be given out", transient=False)
    if node.major not in (None, major) or node.minor not in (None, minor):
        cause = f"the spec says {node.major}:{node.minor}, but it is {major}:{minor}; write the spec again"
        raise HostError("resolve", host_path, cause, transient=False)
    # Never `m`: nobody in a container makes device nodes.
    access = "".join(sorted(set(node.permissions or "rw") - {"m"}))
    mode = node.file_mode if node.file_mode is not None else stat.S_IMODE(info.st_mode)
    return Node(path, host_path, major, minor, access, mode, node.uid or 0, node.gid or 0)


def _moved(path: str, by: int) -> str:
    return _LAST_NUMBER.sub(lambda match: str(int(match[0]) + by), path) if by else path


def _once(places: dict[str, _Thing], path: str, thing: _Thing, gpu: Gpu) -> None:
    if places.setdefault(path, thing) != thing:
        raise HostError("resolve", gpu.uuid, f"two things want to be {path}", transient=False)


def _visible(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Programs count the GPUs that they can open from zero. An instance of one is called by its name."""
    numbers = ",".join(gpu.uuid if gpu.card else str(position) for position, gpu in enumerate(gpus))
    vendors = {gpu.vendor for gpu in gpus}
    names = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"] if "nvidia" in vendors else []
    names += ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] if "amd" in vendors else []
    return dict.fromkeys(names, numbers)
