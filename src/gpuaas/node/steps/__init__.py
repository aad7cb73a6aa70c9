"""How a machine is made and taken down: an ordered table of steps, one file each.

The contract of a step, checked by tests/laws/test_steps.py for every row:
  - `ensure()` may run again at any time: at every agent start, after a crash half-way, after a reboot. It leaves alone
    what is right. It raises HostError when it cannot do its work.
  - `remove()` is safe when `ensure()` never ran. Absence is success.
  - Teardown goes in reverse and gives every step its chance; a step that must not run before another one succeeded
    names it in `needs`.
A step keeps nothing: what it must know it reads from the host.
"""

from gpuaas.node.steps.access import Access
from gpuaas.node.steps.container import RunningContainer
from gpuaas.node.steps.devices import Devices
from gpuaas.node.steps.interrupt import Interrupt
from gpuaas.node.steps.network import Network
from gpuaas.node.steps.rootfs import Rootfs
from gpuaas.node.steps.runtimes import Runtimes
from gpuaas.node.steps.step import Outcome, Step

__all__ = ["RUNTIMES_ALONE", "STAGES", "STEPS", "TEARDOWN", "Outcome", "Step"]

Lane = tuple[Step, ...]  # in this order

# Each row stands on the rows before it; the lanes of a row have nothing to do with each other.
STAGES: tuple[tuple[Lane, ...], ...] = (
    ((Interrupt(),),),  # nothing may be reset or replaced under a container that is about to be started anew
    ((Rootfs(),), (Devices(), Network())),
    ((Access(),),),  # for the ids of the file system, and with what the devices put into the environment
    ((RunningContainer(),),),  # it starts only on top of everything else
    ((Runtimes(),),),  # no machine waits for them
)

RUNTIMES_ALONE = STAGES[-1:]

STEPS: tuple[Step, ...] = tuple(step for lanes in STAGES for lane in lanes for step in lane)

# Interrupt has nothing of its own to take down; stopping the container is the first row here.
TEARDOWN: tuple[Step, ...] = tuple(reversed(STEPS[1:]))
