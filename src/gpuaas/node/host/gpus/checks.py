"""What the doctor finds out about real GPUs beyond that they are there: whether one can be given out, and cleared."""

import shutil
from collections.abc import Sequence

from gpuaas.kit.errors import HostError
from gpuaas.node.host.command import SEARCH_PATH
from gpuaas.node.host.findings import Finding, bad, good
from gpuaas.node.host.gpus.cdi_edits import resolve
from gpuaas.node.host.gpus.cdi_read import Library
from gpuaas.node.host.gpus.gpu import Gpu
from gpuaas.node.host.gpus.scrub import Commands, is_instance

_WRITES_SPECS = {
    "nvidia": "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (NVIDIA Container Toolkit)",
    "amd": "amd-ctk cdi generate --output=/etc/cdi/amd.json (AMD Container Toolkit)",
}
_BRINGS = {"nvidia-smi": "it comes with NVIDIA's driver", "amd-smi": "it comes with ROCm (package amd-smi-lib)"}


def check(gpus: Sequence[Gpu], library: Library, commands: Commands) -> list[Finding]:
    """Of those that are well: the others are given to nobody."""
    well = [gpu for gpu in gpus if not gpu.trouble]
    return [specs(well, library), *resets(well, commands), *instances(well, commands)] if well else []


def specs(gpus: Sequence[Gpu], library: Library) -> Finding:
    """Tried as a launch would: without one, no machine with this GPU can be started."""
    causes: dict[str, list[str]] = {}
    for gpu in gpus:
        try:
            resolve(library, [gpu])
        except HostError as error:
            causes.setdefault(error.cause, []).append(gpu.uuid)
    if not causes:
        return good("CDI specs", f"for all {len(gpus)} GPUs")
    lacking = {uuid for uuids in causes.values() for uuid in uuids}
    problem = "; ".join(f"{', '.join(uuids[:4])}{' ...' if uuids[4:] else ''}: {why}" for why, uuids in causes.items())
    vendors = sorted({gpu.vendor for gpu in gpus if gpu.uuid in lacking})
    remedy = "; ".join(_WRITES_SPECS[vendor] for vendor in vendors if vendor in _WRITES_SPECS)
    value = f"for {len(gpus) - len(lacking)} of {len(gpus)} GPUs"
    return bad("CDI specs", value, problem[:1500], f"{remedy}; then start the agent again")


def resets(gpus: Sequence[Gpu], commands: Commands) -> list[Finding]:
    """Without its program a GPU would be in quarantine after its first user."""
    kinds = {"a MIG instance" if is_instance(gpu) else gpu.vendor: commands.of(gpu) for gpu in gpus}
    found = []
    for kind, command in sorted(kinds.items()):
        if not command:
            continue  # see `instances`
        path = shutil.which(command[0], path=SEARCH_PATH)
        if path is None:
            problem = f"it is not there, and nothing else clears {kind} for the next user"
            found.append(bad(command[0], "missing", problem, _BRINGS.get(command[0], "see --clear-mig")))
        else:
            found.append(good(command[0], path))
    return found


def instances(gpus: Sequence[Gpu], commands: Commands) -> list[Finding]:
    count = sum(is_instance(gpu) for gpu in gpus)
    if not count:
        return []
    if commands.mig:
        return [good("MIG", f"{count} instances, cleared by {commands.mig[0]}")]
    problem = "nobody has said how an instance is cleared: each is in quarantine after its first user"
    remedy = 'gpuaas agent run --clear-mig "COMMAND {uuid}"; see the guide on capacity'
    return [bad("MIG", f"{count} instances", problem, remedy, required=False)]
