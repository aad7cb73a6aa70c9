"""`gpuaas agent doctor`: what this machine offers to allocations, what is missing, and how to get it.

Looks and tries; changes nothing. What it tries it does in a directory and a mount namespace of its own.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import limits, oci_runtimes, tools
from gpuaas.node.host.cgroups import layout as cgroup_layout
from gpuaas.node.host.cgroups import moves
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.command import SEARCH_PATH, run
from gpuaas.node.host.findings import Finding, bad, good, ready, render
from gpuaas.node.host.gpus import cdi_read
from gpuaas.node.host.gpus import checks as gpu_checks
from gpuaas.node.host.gpus.discover import discover
from gpuaas.node.host.gpus.gpu import Found
from gpuaas.node.host.gpus.scrub import cleared_by
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.network import checks
from gpuaas.node.host.oci_runtimes import Runtime
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.probe import PROBES
from gpuaas.node.host.runtimes.descriptor import open_to_others

__all__ = ["Finding", "check", "ready", "render"]

OLDEST_KERNEL = (5, 19)  # idmapped layers below an overlay
MIN_FREE_BYTES = 10 * 2**30
_SECONDS = 20.0
_PROBE_PREFIX = ".doctor-"
# An overlay's upper layer does not work on the first three; the last forgets everything at a reboot.
_POOR_FILESYSTEMS = {"overlay", "nfs", "nfs4", "9p", "tmpfs"}


def check(
    paths: Paths,
    *,
    simulated_gpus: str = "",
    interfaces: str = "gv",
    clear_mig: str = "",
    disk_limit: str = limits.DEFAULT,
) -> list[Finding]:
    layout = cgroup_layout.detect()
    tried = _try(paths.state)
    found = Found() if simulated_gpus else discover()
    return [
        kernel(os.uname().release),
        _tried("user namespaces", tried["user_namespaces"], "allow them: sysctl user.max_user_namespaces"),
        _tried(
            "idmapped overlay", tried["overlay"], "use a kernel >= 5.19 and a state directory on ext4, XFS or btrfs"
        ),
        cgroups(layout),
        *runtimes(oci_runtimes.installed(layout)),
        _program("nft", "nftables", ["--version"]),
        checks.firewall(interfaces),
        checks.marks(),
        _init(),
        _program("mmdebstrap", "mmdebstrap", ["--version"], required=False),
        images(tried["images"], tried["images_from_files"]),
        _state_directory(paths.state),
        _disk(paths.state),
        descriptors(paths.descriptors),
        limit(disk_limit, *limits.missing(disk_limit)),
        gpus(found, simulated_gpus),
        *gpu_checks.check(found.gpus, cdi_read.read(), cleared_by(clear_mig)),
    ]


def kernel(release: str) -> Finding:
    match = re.match(r"(\d+)\.(\d+)", release)
    if match and (int(match[1]), int(match[2])) >= OLDEST_KERNEL:
        return good("kernel", release)
    wanted = ".".join(map(str, OLDEST_KERNEL))
    return bad("kernel", release, f"it is older than {wanted}", "Debian: apt install linux-image-amd64, from backports")


def cgroups(layout: Layout) -> Finding:
    value = f"{layout.kind} ({', '.join(sorted({*layout.v1, *layout.v2_controllers})) or 'no controllers'})"
    value += ", quick moves" if moves.are_quick(layout) else ""
    lacking = layout.lacking()
    if lacking:
        remedy = "boot with systemd.unified_cgroup_hierarchy=1 and cgroup_enable=memory"
        return bad("cgroups", value, f"nothing limits {', '.join(lacking)}", remedy)
    return good("cgroups", value)


def runtimes(found: list[Runtime]) -> list[Finding]:
    """One can be used; and of each what is known against it."""
    usable = [runtime for runtime in found if not runtime.refusal]
    problem = "; ".join(f"{each.name} {each.version}: {each.refusal}" for each in found) or "none is installed"
    chosen = (
        good("OCI runtime", f"{usable[0].name} {usable[0].version} at {usable[0].path}")
        if usable
        else bad("OCI runtime", "none", problem, "apt install runc")
    )
    return [chosen, *(_verdict(runtime) for runtime in found)]


def images(trouble: str, trouble_from_files: str) -> Finding:
    """Runtimes are images; `trouble`: they are mounted in neither way."""
    if trouble:
        remedy = "use a kernel with EROFS (CONFIG_EROFS_FS), and with one older than 6.12 loop devices: modprobe loop"
        return bad("EROFS images", "do not work", trouble, remedy)
    if trouble_from_files:
        return good("EROFS images", f"mounted by loop devices (not from files: {trouble_from_files})")
    return good("EROFS images", "mounted from files")


def limit(name: str, problem: str, remedy: str) -> Finding:
    """Required: one machine without a limit can take the disk from all the others. Whoever wants that has to say so."""
    if name == "none":
        return good("disk limit", "none, as asked: one machine can fill the disk for all")
    if problem:
        remedy = f"{remedy}; or let machines fill the disk: gpuaas agent run --disk-limit none"
        return bad("disk limit", "does not work", problem, remedy)
    return good("disk limit", "an ext4 image for each machine")


def gpus(found: Found, simulated: str = "") -> Finding:
    if simulated:
        return good("GPUs", f"{simulated}, simulated")
    names = ", ".join(f"{gpu.model} (driver {gpu.driver}, {gpu.toolkit})" for gpu in found.gpus)
    unusable = "; ".join(f"{each.what}: {each.why}" for each in found.unusable)
    unwell = "; ".join(f"{gpu.uuid}: {gpu.trouble}" for gpu in found.gpus if gpu.trouble)
    if found.gpus:
        problem = "; ".join(text for text in (unusable, unwell) if text)
        remedy = "see the vendor's tool (nvidia-smi, amd-smi)"
        return bad("GPUs", names, problem, remedy, required=False) if problem else good("GPUs", names)
    remedy = "install the vendor's driver, or start the agent with --simulate-gpus 8xH100"
    return bad("GPUs", "none", unusable or "there is no GPU on the PCI bus", remedy)


def _verdict(runtime: Runtime) -> Finding:
    package = f" (Debian {runtime.package})" if runtime.package else ""
    value = f"{runtime.version}{package}: {runtime.verdict}"
    if runtime.refusal or runtime.open_holes:
        problem = runtime.refusal or "upstream has fixed this in a newer version"
        return bad(runtime.name, value, problem, f"use {oci_runtimes.RECOMMENDED[runtime.name]}", required=False)
    return good(runtime.name, value)


def _tried(name: str, trouble: str, remedy: str) -> Finding:
    return bad(name, "does not work", trouble, remedy) if trouble else good(name, "works")


def _program(name: str, package: str, version: list[str], *, required: bool = True) -> Finding:
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        return bad(name, "missing", f"{name} is not installed", f"apt install {package}", required=required)
    try:
        # Some print usage instead, with the version in it.
        match = re.search(r"\d+\.\d+[\w.]*", run([path, *version], _SECONDS).output)
    except HostError as error:
        return bad(name, path, error.cause, f"apt install --reinstall {package}", required=required)
    return good(name, f"{match[0] if match else 'unknown version'} at {path}")


def _init() -> Finding:
    path = tools.init_program()
    if path is None:
        return bad("init", "missing", "catatonit is not installed", "apt install catatonit")
    return good("init", path)


def _state_directory(state: Path) -> Finding:
    existing = _existing(state)
    table = mounts.mounts()
    mount = next(found for each in (existing, *existing.parents) if (found := mounts.at(each, table)) is not None)
    value = f"{state} on {mount.filesystem}"
    if mount.filesystem in _POOR_FILESYSTEMS:
        problem = f"layers do not work on {mount.filesystem}, or do not last"
        return bad("state directory", value, problem, "choose one on ext4, XFS or btrfs", required=False)
    return good("state directory", value)


def _disk(state: Path) -> Finding:
    free = shutil.disk_usage(_existing(state)).free
    value = f"{free / 2**30:.0f} GiB free"
    if free < MIN_FREE_BYTES:
        return bad("disk", value, f"less than {MIN_FREE_BYTES / 2**30:.0f} GiB are free", "free some, or add a disk")
    return good("disk", value)


def descriptors(directory: Path) -> Finding:
    if wrong := open_to_others(directory):
        problem = "it is not a real directory that only root can write, so that no agent starts"
        return bad("descriptors", str(wrong), problem, f"chown root {wrong} && chmod go-w {wrong}")
    return good("descriptors", str(directory))


def _try(state: Path) -> dict[str, str]:
    """What the kernel really does, tried by `probe`: its mounts end with it, also when it is killed."""
    base = _existing(state)
    try:
        for old in base.glob(_PROBE_PREFIX + "*"):
            if old.stat().st_mtime < time.time() - 10 * _SECONDS:  # a killed doctor's, not that of one at work
                shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_PROBE_PREFIX, dir=base, ignore_cleanup_errors=True) as directory:
            done = run([sys.executable, "-I", "-m", "gpuaas.node.host.probe", os.path.realpath(directory)], _SECONDS)
        answers: dict[str, str] = json.loads(done.last_line)
        return answers
    except (HostError, OSError, ValueError) as error:
        return dict.fromkeys(PROBES, f"could not be tried: {error}")


def _existing(path: Path) -> Path:
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.is_dir())
