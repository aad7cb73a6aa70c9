"""What is mounted in a machine besides its root: the kernel's file systems, the platform's files, its GPUs."""

from typing import Any

from gpuaas.node.host.container.boot import Boot

_RUN_BYTES = 64 << 20
_LOCK_BYTES = 5 << 20
_DEV_BYTES = 1 << 16
_SAFE = ("nosuid", "nodev", "noexec")
# Recursive, because a flag on the top mount alone says nothing about what is mounted below it (V5). Private: nothing
# that is mounted there later arrives.
_READ_ONLY = ("rbind", "rprivate", "ro", "rro", "nosuid", "rnosuid", "nodev", "rnodev")
_VIEW = ("rbind", "rslave", "nosuid", "nodev")


def mounts(boot: Boot) -> list[dict[str, Any]]:
    """Parents first."""
    return [
        _mount("/proc", "proc", *_SAFE),
        # Without nodev: this is where the devices are. None can be made there, in a user namespace.
        _mount("/dev", "tmpfs", "nosuid", "noexec", "strictatime", "mode=755", f"size={_DEV_BYTES}"),
        _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("/dev/shm", "tmpfs", *_SAFE, "mode=1777", f"size={boot.shm_bytes}"),  # noqa: S108
        _mount("/dev/mqueue", "mqueue", *_SAFE),
        _mount("/sys", "sysfs", *_SAFE, "ro"),
        _mount("/sys/fs/cgroup", "cgroup", *_SAFE, "relatime", "ro"),
        _mount("/run", "tmpfs", "nosuid", "nodev", "mode=755", f"size={_RUN_BYTES}"),
        _mount("/run/lock", "tmpfs", *_SAFE, "mode=1777", f"size={_LOCK_BYTES}"),
        _mount("/run/sshd", "tmpfs", *_SAFE, "ro", "mode=755", "size=4096"),  # where sshd locks itself in
        # A directory of /run could be renamed, and another put in its place, with another sshd and other keys.
        _mount("/run/gpuaas", "tmpfs", *_SAFE, "ro", "mode=755", "size=4096"),
        *(_bind(each.source, each.target, _READ_ONLY) for each in boot.binds),
        *(_bind(each.source, each.target, (*_VIEW, *(("ro",) if each.read_only else ()))) for each in boot.views),
        *(each | {"options": _without_suid(each["options"])} for each in boot.gpus.mounts),
    ]


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _bind(source: str, target: str, options: tuple[str, ...]) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": source, "options": list(options)}


def _without_suid(options: list[str]) -> list[str]:
    """Whatever the vendor's CDI spec says."""
    return [*(each for each in options if each != "suid"), *([] if "nosuid" in options else ["nosuid"])]
