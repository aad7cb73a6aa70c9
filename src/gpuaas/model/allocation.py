"""The machine, and what a request for one says."""

from dataclasses import dataclass
from datetime import datetime

from gpuaas.model.lifecycle import ALLOCATION

# A seat is a small number, unique among the live allocations of a node; ports and ids follow from it.
# Ports lie outside Linux's ephemeral range (32768-60999), id ranges above every account of the host.
FIRST_SSH_PORT = 20_000
FIRST_UID = 1_048_576
UID_RANGE = 65_536
SEATS_PER_NODE = 4_096


def ssh_port(seat: int) -> int:
    return FIRST_SSH_PORT + seat


def uid_base(seat: int) -> int:
    return FIRST_UID + seat * UID_RANGE


@dataclass(frozen=True)
class Allocation:
    id: str
    org_id: str
    project_id: str
    name: str
    offer_id: str
    owner_id: str
    group_id: str
    state: str
    previous_state: str | None
    version: int
    node_id: str | None
    realisation: str | None
    seat: int | None
    incarnation: int
    generation: int  # the one that is wanted
    observed: int  # the newest one that the node has answered for
    report_epoch: int  # (epoch, seq) of the newest report: an older one that arrives late changes nothing
    report_seq: int
    restarts: int  # never goes back, so that every restart is a new one
    host_key: str
    failure_code: str | None
    failure_message: str | None
    created_at: datetime
    active_at: datetime | None
    reaped_at: datetime | None  # the node proved that nothing is left
    released_at: datetime | None
    preemptible: bool = False  # gives way to others, after a warning

    @property
    def allowed_actions(self) -> tuple[str, ...]:
        actions = ALLOCATION.allowed(self.state)
        if self.state == "failed" and not self.kept:
            return tuple(action for action in actions if action == "release")
        return actions

    @property
    def kept(self) -> bool:
        """Whether the machine of a failed allocation was kept: it was when it ran once."""
        return self.active_at is not None
