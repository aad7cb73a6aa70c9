"""Takes from a process of ours that has entered a machine all that the machine's own processes do not have either.

Called in the child that has been forked for it, after the last setns and right before execve. From setns on, every file
it could open is the tenant's (T7): all that is used here has been loaded and looked up before, and the caller must see
to it that an error is written to a pipe it has, not formatted with sources that Python would go and read.
"""

import os

from gpuaas.node.host import kernel
from gpuaas.node.host.container import rlimits
from gpuaas.node.host.container.capabilities import MASK


def apply(program: bytes) -> None:
    """`program` comes from `seccomp.program()`, called before. Afterwards this is root inside, and no more."""
    # While it still has the host's ids: keys count against the owner of the process.
    kernel.leave_session_keyring()
    kernel.hide_from_tracers()
    rlimits.apply()
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    # Needs CAP_SYS_ADMIN, or no_new_privs, with which sudo would not work: so it is first, and lets the rest pass.
    kernel.filter_syscalls(program)
    kernel.limit_capabilities(MASK)
