"""The whole config.json of a machine's container. We never start from a runtime's own default (V16)."""

from typing import Any

from gpuaas.node.host.container import mounts, seccomp
from gpuaas.node.host.container.boot import Boot, check, check_text
from gpuaas.node.host.container.capabilities import CAPABILITIES
from gpuaas.node.host.container.hidden import MASKED, READ_ONLY
from gpuaas.node.host.container.rlimits import rlimits
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE

# Of the machine's processes, whatever the agent's own is: they are killed before anything of the host.
OOM_SCORE_ADJ = 100
ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "HOME=/root",
    "container=gpuaas",
)
# null, zero, full, random, urandom, tty, ptmx, and the terminals of this container
DEVICES = ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (136, None))
_SYSCTLS = {
    # Ping without raw sockets, for every group that there is inside.
    "net.ipv4.ping_group_range": f"0 {IDS_PER_RANGE - 1}",
    # The addresses are the machine's own: there is nobody to protect a low port from.
    "net.ipv4.ip_unprivileged_port_start": "0",
}


def config(boot: Boot) -> dict[str, Any]:
    check(boot)
    made: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "root": {"path": str(boot.rootfs), "readonly": False},
        "hostname": boot.hostname,
        "process": _process(boot),
        "mounts": mounts.mounts(boot),
        "hooks": boot.gpus.hooks,
        "linux": _linux(boot),
    }
    check_text(made)
    made["linux"]["seccomp"] = seccomp.oci()  # nothing of it comes from elsewhere, and it is most of the text
    return made


def _process(boot: Boot) -> dict[str, Any]:
    held = list(CAPABILITIES)
    return {
        "terminal": False,
        "cwd": "/",
        "args": list(boot.init),
        "env": [*ENVIRONMENT, *boot.gpus.env],
        "user": {"uid": 0, "gid": 0, "additionalGids": boot.gpus.gids},
        # Nothing inheritable: a program that is not root's starts with nothing.
        "capabilities": {"bounding": held, "effective": held, "permitted": held, "inheritable": [], "ambient": []},
        "rlimits": [{"type": name, "soft": soft, "hard": hard} for name, (soft, hard) in rlimits().items()],
        "noNewPrivileges": False,  # sudo
        "oomScoreAdj": OOM_SCORE_ADJ,
    }


def _linux(boot: Boot) -> dict[str, Any]:
    ids = [{"containerID": 0, "hostID": boot.uid_base, "size": IDS_PER_RANGE}]
    return {
        "namespaces": [
            *({"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")),
            {"type": "user", "path": boot.user_namespace},
            {"type": "network", "path": boot.network_namespace},
        ],
        "uidMappings": ids,
        "gidMappings": ids,
        "rootfsPropagation": "rslave",  # so that what is mounted in a view later arrives
        "cgroupsPath": boot.cgroup,
        "resources": {"devices": _rules(boot)},
        "devices": boot.gpus.devices,
        "maskedPaths": list(MASKED),
        "readonlyPaths": list(READ_ONLY),
        "sysctl": _SYSCTLS,
    }


def _rules(boot: Boot) -> list[dict[str, Any]]:
    always = [{"allow": True, "type": "c", "major": major, "access": "rw"} for major, _ in DEVICES]
    for rule, (_, minor) in zip(always, DEVICES, strict=True):
        if minor is not None:
            rule["minor"] = minor
    return [{"allow": False, "access": "rwm"}, *always, *boot.gpus.rules]
