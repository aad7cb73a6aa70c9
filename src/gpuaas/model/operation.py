"""A long change: which kinds there are, which phases each shows, and how a node's report maps onto them.

An operation has no undo of its own. It is a projection: it asked for a generation, and it ends when the node has
answered for that generation (or for a newer one).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

MACHINE = "machine"  # the facet of launch, restart and release
ACCESS = "access"  # who gets in: changes beside whatever the machine is doing
RUNTIME = "runtime"  # what it has of the catalog; each bundle is a facet of its own, see `runtime_facet`

# Names of the node's steps, in the order in which the agent runs them (node/steps). A law test compares the two.
NODE_STEPS = ("stop", "rootfs", "devices", "network", "access", "container", "runtimes")
MACHINE_STEPS = NODE_STEPS[:-1]  # a machine is ready whether or not its runtimes are


@dataclass(frozen=True)
class Kind:
    """One kind of operation: `here` phases are done by the control plane, `there` by the node."""

    name: str
    facet: str
    here: tuple[str, ...]
    there: tuple[str, ...]
    last: str  # the phase that ends with the operation
    absorbs: bool = False  # supersedes what is open on any facet, not only on its own

    @property
    def phases(self) -> tuple[str, ...]:
        return (*self.here, *self.there, self.last)


LAUNCH = Kind("launch", MACHINE, here=("place", "deliver"), there=MACHINE_STEPS[1:], last="ready")
RESTART = Kind("restart", MACHINE, here=("deliver",), there=MACHINE_STEPS, last="ready")
RELEASE = Kind("release", MACHINE, here=("deliver",), there=tuple(reversed(NODE_STEPS[1:])), last="free", absorbs=True)
STOP = Kind("stop", MACHINE, here=("deliver",), there=("stop",), last="stopped")
ACCESS_UPDATE = Kind("access.update", ACCESS, here=("deliver",), there=("access",), last="ready")
# They end by what the node says of the runtime, not of the machine: that is ready whether or not its runtimes are.
RUNTIME_APPLY, RUNTIME_ROLLBACK, RUNTIME_REPAIR = (
    Kind(f"runtime.{verb}", RUNTIME, here=("deliver", "fetch"), there=(), last="ready")
    for verb in ("apply", "rollback", "repair")
)
RUNTIME_REMOVE = Kind("runtime.remove", RUNTIME, here=("deliver",), there=(), last="removed")
OF_RUNTIMES = {kind.name: kind for kind in (RUNTIME_APPLY, RUNTIME_ROLLBACK, RUNTIME_REPAIR)}
OF_MACHINES = {kind.name: kind for kind in (LAUNCH, RESTART, STOP, RELEASE, ACCESS_UPDATE)}
KINDS = {**OF_MACHINES, **OF_RUNTIMES, RUNTIME_REMOVE.name: RUNTIME_REMOVE}


def runtime_facet(slug: str) -> str:
    """Changes of different bundles do not concern each other."""
    return f"{RUNTIME}:{slug}"


@dataclass(frozen=True)
class Operation:
    id: str
    kind: str
    facet: str
    org_id: str
    project_id: str
    allocation_id: str
    state: str
    generation: int
    phases: list[dict[str, Any]]
    failure_code: str | None
    failure_message: str | None
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    correlation_id: str | None


def fresh_phases(kind: Kind, now: float) -> list[dict[str, Any]]:
    """All phases pending, the first one running."""
    phases: list[dict[str, Any]] = [
        {
            "name": name,
            "state": "pending",
            "started_at": None,
            "finished_at": None,
            "progress_at": None,
            "message": "",
            "percent": None,
            "log": "",
        }
        for name in kind.phases
    ]
    return begin(phases, kind.phases[0], now)


def begin(phases: list[dict[str, Any]], name: str, now: float) -> list[dict[str, Any]]:
    return _set(phases, name, state="running", started_at=now, progress_at=now)


def done(phases: list[dict[str, Any]], name: str, now: float, message: str = "") -> list[dict[str, Any]]:
    """`name` is done. Phases before it that nobody reported are done too: the order is what the table says."""
    result: list[dict[str, Any]] = []
    reached = False
    for phase in phases:
        if reached or phase["state"] in ("done", "failed"):
            result.append(phase)
        else:
            changes: dict[str, Any] = {"state": "done", "finished_at": now, "progress_at": now, "percent": 100}
            changes["started_at"] = phase["started_at"] or now
            if phase["name"] == name and message:
                changes["message"] = message
            result.append({**phase, **changes})
        reached = reached or phase["name"] == name
    return result


def delivered(phases: list[dict[str, Any]], steps: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """The node has it since its first step began; its first report comes later. Its clock may be another one."""
    sent = next((phase["started_at"] for phase in phases if phase["name"] == "deliver"), None)
    begun = min((step["started_at"] for step in steps if step["started_at"]), default=now)
    return done(phases, "deliver", min(now, max(begun, sent or begun)))


def say(phases: list[dict[str, Any]], name: str, message: str) -> list[dict[str, Any]]:
    """The same, with a remark on one of them."""
    return _set(phases, name, message=message)


def failed(phases: list[dict[str, Any]], now: float, message: str) -> list[dict[str, Any]]:
    """The phase that was running (or the first that is not done) failed, unless one is already marked."""
    if any(phase["state"] == "failed" for phase in phases):
        return phases
    for wanted in ("running", "pending"):
        for phase in phases:
            if phase["state"] == wanted:
                return _set(
                    phases,
                    phase["name"],
                    state="failed",
                    finished_at=now,
                    progress_at=now,
                    message=message,
                    started_at=phase["started_at"] or now,
                )
    return phases


def reported(phases: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The node's step reports, laid over the phases of the same name. A phase never goes back from done."""
    by_name = {step["name"]: step for step in steps}
    return [
        {**phase, **by_name[phase["name"]]} if phase["name"] in by_name and phase["state"] != "done" else phase
        for phase in phases
    ]


def _set(phases: list[dict[str, Any]], name: str, **changes: Any) -> list[dict[str, Any]]:
    return [{**phase, **changes} if phase["name"] == name else phase for phase in phases]
