"""Makes it quick to move a process into a cgroup: a launch and a login each do it.

Each move waits for every processor once, 5 to 15 ms, unless the hierarchy is told to favour moves; then it takes less
than one. Forks and exits of the whole host become a little slower. From Linux 6.18 on it stays like this until the next
boot, so `--no-quick-cgroups` is for hosts on which somebody minds.
"""

import logging
import os

from gpuaas.node.host import kernel
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.mounts import mounts

log = logging.getLogger(__name__)

_OPTION = "favordynmods"


def are_quick(layout: Layout) -> bool:
    place = mounts.at(layout.v2) if layout.v2 else None
    return place is not None and _OPTION in place.super_options


def make_quick(layout: Layout) -> None:
    """Where this kernel can do it, and we may; otherwise everything works all the same."""
    place = mounts.at(layout.v2) if layout.v2 else None
    if place is None or _OPTION in place.super_options:
        return
    context = -1
    try:
        context = kernel.fspick(str(layout.v2))
        for option in (*sorted(place.super_options - {"rw", "ro"}), _OPTION):  # what is not named would be switched off
            kernel.fsconfig(context, option, None)
        kernel.fsreconfigure(context)
        log.info("moving processes between cgroups is quick now, until the next boot")
    except OSError as error:
        log.info("moving processes between cgroups stays slow: %s", error)
    finally:
        if context >= 0:
            os.close(context)
