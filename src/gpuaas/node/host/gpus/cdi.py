"""The model of a CDI spec (cncf-tags/container-device-interface 1.1): what may stand in one, and what we refuse.

A spec decides what runs as root on this host, so it is refused as a whole, by name, for anything that is not known
to be harmless. Reading is in `cdi_read`, applying in `cdi_edits`. Never taken over the wire.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

_CONTROL = r"\x00-\x1f\x7f-\x9f"
Text = Annotated[str, Meta(max_length=4096, pattern=rf"^[^{_CONTROL}]*\Z")]
PathText = Annotated[str, Meta(max_length=4096, pattern=rf"^/[^{_CONTROL}]*\Z")]
Env = Annotated[str, Meta(max_length=4096, pattern=rf"^[A-Za-z_][A-Za-z0-9_]*=[^{_CONTROL}]*\Z")]
Kind = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*\Z")]
Name = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*\Z")]
Number = Annotated[int, Meta(ge=0, le=2**32 - 1)]

MOUNT_OPTIONS = {"ro", "rw", "nosuid", "nodev", "noexec", "bind", "rbind", "private", "rprivate"}
_NOT_OVER = ("/proc", "/sys", "/opt/gpuaas", "/etc/gpuaas", "/run/gpuaas")
_MEMORY_MAJOR = 1  # /dev/mem, /dev/kmem, /dev/port


class _Part(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """An unknown field may be what makes a spec dangerous."""


class DeviceNode(_Part, frozen=True):
    path: PathText
    host_path: PathText = ""
    type: Text = ""
    major: Number | None = None
    minor: Number | None = None
    file_mode: Number | None = None
    permissions: Annotated[str, Meta(pattern=r"^[rwm]{0,3}\Z")] = ""
    uid: Number | None = None
    gid: Number | None = None


class Mount(_Part, frozen=True):
    host_path: PathText
    container_path: PathText
    options: list[Text] = []
    type: Text = ""


class Hook(_Part, frozen=True):
    hook_name: Text
    path: PathText
    args: list[Text] = []
    env: list[Env] = []
    timeout: Number | None = None


class ContainerEdits(_Part, frozen=True):
    env: list[Env] = []
    device_nodes: list[DeviceNode] = []
    mounts: list[Mount] = []
    hooks: list[Hook] = []
    additional_gids: list[Number] = []
    intel_rdt: Any = None
    net_devices: list[Any] = []


class Device(_Part, frozen=True):
    name: Name
    container_edits: ContainerEdits
    annotations: dict[Text, Text] = {}


class Spec(_Part, frozen=True):
    cdi_version: Annotated[str, Meta(pattern=r"^(0\.[3-8]|1\.[01])\.\d{1,3}\Z")]
    kind: Kind
    devices: Annotated[list[Device], Meta(max_length=4096)]
    container_edits: ContainerEdits = ContainerEdits()
    annotations: dict[Text, Text] = {}


@dataclass(frozen=True)
class AllowedHook:
    """A program that a spec may have run as root on this host, when its arguments begin like this."""

    path: str
    args: tuple[str, ...]


# Not `enable-cuda-compat`: that was NVIDIAScape (CVE-2025-23266). `nvidia-ctk cdi generate --disable-hook` omits it.
_NVIDIA_HOOKS = (
    "create-symlinks",
    "create-soname-symlinks",
    "update-ldcache",
    "chmod",
    "disable-device-node-modification",
)
ALLOWED_HOOKS = (
    *(AllowedHook("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", verb)) for verb in _NVIDIA_HOOKS),
    *(AllowedHook("/usr/bin/nvidia-ctk", ("nvidia-ctk", "hook", verb)) for verb in _NVIDIA_HOOKS),
)


class Refused(Exception):
    """The spec asks for something that it may not have."""


def parse(data: bytes, *, yaml: bool = False, allowed_hooks: Sequence[AllowedHook] = ALLOWED_HOOKS) -> Spec:
    try:
        spec = msgspec.yaml.decode(data, type=Spec) if yaml else msgspec.json.decode(data, type=Spec)
    except ImportError as error:
        raise Refused("PyYAML is not installed; write the spec as JSON (nvidia-ctk: --format=json)") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(str(error)) from error
    names = [device.name for device in spec.devices]
    if len(set(names)) != len(names):
        raise Refused("two devices have the same name")
    for edits in (spec.container_edits, *(device.container_edits for device in spec.devices)):
        _check(edits, allowed_hooks)
    return spec


def _check(edits: ContainerEdits, allowed_hooks: Sequence[AllowedHook]) -> None:
    if edits.intel_rdt is not None or edits.net_devices:
        raise Refused("intelRdt and netDevices are not supported")
    for entry in edits.env:
        if entry.startswith(("LD_", "PATH=")):
            raise Refused(f"it sets {entry.partition('=')[0]}")
    for node in edits.device_nodes:
        _check_node(node)
    for mount in edits.mounts:
        _check_mount(mount)
    for hook in edits.hooks:
        _check_hook(hook, allowed_hooks)


def _check_node(node: DeviceNode) -> None:
    for path in (node.path, node.host_path or node.path):
        _check_path(path)
    if not node.path.startswith("/dev/"):
        raise Refused(f"the device {node.path} is not below /dev")
    if node.type not in ("", "c", "u"):
        raise Refused(f"{node.path} is not a character device")
    if node.major == _MEMORY_MAJOR:
        raise Refused(f"{node.path} is the host's memory")


def _check_mount(mount: Mount) -> None:
    _check_path(mount.host_path)
    _check_path(mount.container_path)
    target = mount.container_path
    if target == "/" or any(target == place or target.startswith(place + "/") for place in _NOT_OVER):
        raise Refused(f"it mounts over {target}")
    if mount.type not in ("", "bind"):
        raise Refused(f"{target} is a mount of type {mount.type}")
    if not set(mount.options) <= MOUNT_OPTIONS:
        raise Refused(f"{target} has the mount options {', '.join(sorted(set(mount.options) - MOUNT_OPTIONS))}")


def _check_hook(hook: Hook, allowed_hooks: Sequence[AllowedHook]) -> None:
    begins = any(hook.path == each.path and tuple(hook.args[: len(each.args)]) == each.args for each in allowed_hooks)
    if not begins or hook.hook_name != "createContainer":
        raise Refused(f"the hook {hook.hook_name} {hook.path} {' '.join(hook.args[:3])} is not on the allow-list")
    for entry in hook.env:
        if not re.match(r"NVIDIA_[A-Z_]+=", entry):
            raise Refused(f"the hook {hook.path} sets {entry.partition('=')[0]}")


def _check_path(path: str) -> None:
    if os.path.normpath(path) != path or path.startswith("//"):
        raise Refused(f"{path} is not a plain absolute path")
