"""Whether a machine can use a runtime: every reason why not, in words for the user. Pure."""

from msgspec import Struct

from gpuaas.runtimes.inherit import numbers
from gpuaas.runtimes.recipe import Requirements
from gpuaas.runtimes.sizes import show_bytes


class Machine(Struct, frozen=True):
    """What is known of a machine, or of every machine of an offer. Empty: it has none, or nobody knows."""

    architecture: str = "amd64"
    gpu_family: str = ""  # nvidia, amd or nothing
    driver: str = ""
    cuda: str = ""  # the newest that its driver can do
    rocm: str = ""
    memory_bytes: int = 0


def reasons(wanted: Requirements, machine: Machine) -> list[str]:
    """Empty: it fits. What a machine does not tell counts as missing."""
    found = []
    if machine.architecture not in wanted.architectures:
        found.append(f"it is made for {' and '.join(wanted.architectures)}, the machine is {machine.architecture}")
    if wanted.gpu_family in ("nvidia", "amd") and machine.gpu_family != wanted.gpu_family:
        has = f"has {machine.gpu_family}" if machine.gpu_family else "has none"
        found.append(f"it needs GPUs of {wanted.gpu_family}, the machine {has}")
    for what, least, has in (
        ("driver", wanted.min_driver, machine.driver),
        ("CUDA", wanted.cuda, machine.cuda),
        ("ROCm", wanted.rocm, machine.rocm),
    ):
        if least and (not has or numbers(has) < numbers(least)):
            found.append(f"it needs {what} {least} or newer, the machine has {has or 'none'}")
    if machine.memory_bytes < wanted.min_memory_bytes:
        least_memory, has_memory = show_bytes(wanted.min_memory_bytes), show_bytes(machine.memory_bytes)
        found.append(f"it needs {least_memory} of memory, the machine has {has_memory}")
    return found
