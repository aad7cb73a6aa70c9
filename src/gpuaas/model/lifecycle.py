"""A lifecycle is one table of rows (while, on, becomes). The only place that says what may follow what.

The same tables feed the guarded state changes of the store, the API's `allowed_actions`, the CLI's hints and
the generated diagram in docs/lifecycles.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

# In the `becomes` column: the state that the object had before it went into this one.
PREVIOUS = "<previous>"
# In the `becomes` column: a person may do this here, and the state stays what it is. Nothing is moved.
STAYS = "<stays>"


class Row(NamedTuple):
    while_: str
    on: str
    becomes: str
    why: str


@dataclass(frozen=True)
class Lifecycle:
    name: str
    initial: str
    ends: frozenset[str]
    actions: frozenset[str]  # the events that a person may cause; all others are the system's
    rows: tuple[Row, ...]

    @property
    def states(self) -> frozenset[str]:
        named = {row.while_ for row in self.rows} | {row.becomes for row in self.rows}
        return frozenset(named - {PREVIOUS, STAYS})

    def next(self, state: str, event: str) -> str | None:
        """The state that follows, PREVIOUS, STAYS, or None when the event means nothing in this state."""
        return _index(self).get((state, event))

    def allowed(self, state: str) -> tuple[str, ...]:
        """What a person may do in this state, in the order of the table."""
        key = self.name, state
        if key not in _allowed:
            _allowed[key] = tuple(row.on for row in self.rows if row.while_ == state and row.on in self.actions)
        return _allowed[key]

    def while_(self, event: str) -> tuple[str, ...]:
        """The states in which an event means something: for messages that say when it would work."""
        return tuple(row.while_ for row in self.rows if row.on == event)


_allowed: dict[tuple[str, str], tuple[str, ...]] = {}  # asked for every machine of every page
_indexes: dict[str, dict[tuple[str, str], str]] = {}


def _index(lifecycle: Lifecycle) -> dict[tuple[str, str], str]:
    if lifecycle.name not in _indexes:
        _indexes[lifecycle.name] = {(row.while_, row.on): row.becomes for row in lifecycle.rows}
    return _indexes[lifecycle.name]


ALLOCATION = Lifecycle(
    "allocation",
    initial="queued",
    ends=frozenset({"released"}),
    actions=frozenset({"access", "runtime", "extend", "restart", "release"}),
    rows=(
        Row("queued", "placed", "provisioning", "slots are claimed and the node has a spec"),
        Row("queued", "access", STAYS, "the launch will use these keys"),
        Row("queued", "runtime", STAYS, "it comes up with them"),
        Row("queued", "release", "released", "nothing was made, nothing to take down"),
        Row("provisioning", "ready", "active", "the node runs the generation that was asked for"),
        Row("provisioning", "launch_failed", "failed", "compute or the owner's access could not be made"),
        Row("provisioning", "access", STAYS, "the launch goes on with these keys"),
        Row("provisioning", "runtime", STAYS, "the launch does not wait for it"),
        Row("provisioning", "release", "releasing", "release absorbs a launch"),
        Row("provisioning", "lost", "unreachable", "the node fell silent while it worked"),
        Row("active", "access", STAYS, "other keys get in, live; sessions of the others end"),
        Row("active", "runtime", STAYS, "applied, switched and removed while it runs"),
        Row("active", "extend", STAYS, "its lease ends later"),
        Row("active", "restart", "restarting", "same id, endpoint, host key; sessions end"),
        Row(
            "active", "stop", "stopped", "its lease is over: processes end; disk, address and GPUs are kept for a while"
        ),
        Row("active", "died", "failed", "the machine stopped by itself; the node keeps trying"),
        Row("active", "release", "releasing", "the user is done"),
        Row("active", "lost", "unreachable", "the node fell silent; the machine may well be running"),
        Row("restarting", "ready", "active", "up again, or back on the last good generation"),
        Row("restarting", "restart", "restarting", "newer intent supersedes"),
        Row("restarting", "restart_failed", "failed", "the last good generation did not come back either"),
        Row("restarting", "access", STAYS, "it comes up with these keys"),
        Row("restarting", "runtime", STAYS, "it comes up with them"),
        Row("restarting", "extend", STAYS, "its lease ends later"),
        Row("restarting", "release", "releasing", "release absorbs a restart"),
        Row("restarting", "lost", "unreachable", "the node fell silent while it worked"),
        Row("failed", "ready", "active", "the node healed a machine that had failed"),
        Row("failed", "restart", "restarting", "retry, where the machine was kept"),
        Row("failed", "access", STAYS, "where the machine was kept"),
        Row("failed", "extend", STAYS, "where the machine was kept"),
        Row("failed", "release", "releasing", "give it back"),
        Row("failed", "lost", "unreachable", "the node that keeps it fell silent"),
        Row("stopped", "access", STAYS, "it would come up with these keys"),
        Row("stopped", "extend", STAYS, "its lease goes on"),
        Row("stopped", "resume", "restarting", "its lease was extended, so the machine goes on too"),
        Row("stopped", "release", "releasing", "nobody has extended it in time, or the user is done"),
        Row("stopped", "lost", "unreachable", "the node that keeps it fell silent"),
        Row("unreachable", "found", PREVIOUS, "the node is back; the machine is what it was"),
        Row("unreachable", "access", STAYS, "carried out when the node is back"),
        Row("unreachable", "runtime", STAYS, "carried out when the node is back"),
        Row("unreachable", "extend", STAYS, "its lease ends later"),
        Row("unreachable", "release", "releasing", "carried out when the node is back"),
        Row("releasing", "gone", "released", "the node proved that nothing is left"),
    ),
)

OPERATION = Lifecycle(
    "operation",
    initial="running",
    ends=frozenset({"succeeded", "failed", "superseded"}),
    actions=frozenset(),
    rows=(
        Row("running", "succeed", "succeeded", "the generation it asked for is reported ready or gone"),
        Row("running", "fail", "failed", "the node said why, and the last good generation is wanted again"),
        Row("running", "supersede", "superseded", "newer intent on the same facet, or a release"),
    ),
)

NODE = Lifecycle(
    "node",
    initial="joined",
    ends=frozenset({"removed"}),
    actions=frozenset(),
    rows=(
        Row("joined", "synced", "ready", "it told this store what it holds"),
        Row("ready", "silent", "lost", "no word for longer than the limit"),
        Row("joined", "silent", "lost", "it did not come to say what it holds: what was counted there ends"),
        Row("ready", "unsynced", "joined", "another store id: it must say what it holds before it is used"),
        Row("lost", "heard", "ready", "it is back"),
        Row("lost", "unsynced", "joined", "another store id: it must say what it holds before it is used"),
        Row("joined", "remove", "removed", "taken out of the fleet"),
        Row("ready", "remove", "removed", "taken out of the fleet"),
        Row("lost", "remove", "removed", "taken out of the fleet"),
    ),
)

SLOT = Lifecycle(
    "slot",
    initial="proposed",
    ends=frozenset({"retired"}),
    actions=frozenset({"approve", "quarantine", "return"}),
    rows=(
        Row("proposed", "approve", "approved", "an operator vouches for it"),
        Row("proposed", "retire", "retired", "the node no longer has it"),
        Row("approved", "quarantine", "quarantined", "a failed scrub, bad health, an unknown holder"),
        Row("approved", "retire", "retired", "the node no longer has it"),
        Row("quarantined", "return", "approved", "an operator looked at it; free when its node has scrubbed it"),
        Row("quarantined", "retire", "retired", "taken out for good"),
    ),
)

CLAIM = Lifecycle(
    "claim",
    initial="held",
    ends=frozenset({"freed"}),
    actions=frozenset(),
    rows=(
        Row("held", "release", "scrubbing", "no longer used, not yet free"),
        Row("scrubbing", "scrubbed", "freed", "the node gave evidence"),
    ),
)

DELIVERY = Lifecycle(
    "delivery",
    initial="pending",
    ends=frozenset({"delivered", "dead"}),
    actions=frozenset(),
    rows=(
        Row("pending", "answered", "delivered", "the target answered with 2xx"),
        Row("pending", "failed", "pending", "tried again after a pause that grows"),
        Row("pending", "exhausted", "dead", "every attempt failed; a replay is a new delivery"),
    ),
)

RESERVATION = Lifecycle(
    "reservation",
    initial="booked",
    ends=frozenset({"used", "expired", "cancelled"}),
    actions=frozenset({"cancel"}),
    rows=(
        Row("booked", "use", "used", "its machines were launched"),
        Row("booked", "expire", "expired", "nobody came in time, or its window is over"),
        Row("booked", "cancel", "cancelled", "its holder does not need it"),
    ),
)

RUNTIME_BUNDLE = Lifecycle(
    "runtime bundle",
    initial="draft",
    ends=frozenset({"deprecated"}),
    actions=frozenset({"publish", "deprecate"}),
    rows=(
        Row("draft", "publish", "published", "its image is here and is what its manifest says"),
        Row("published", "deprecate", "deprecated", "nobody gets it anew; whoever has it keeps it"),
    ),
)

ALLOCATION_RUNTIME = Lifecycle(
    "allocation runtime",
    initial="applying",
    ends=frozenset({"failed", "superseded", "replaced", "removed"}),
    actions=frozenset({"rollback", "repair", "remove"}),
    rows=(
        Row("applying", "ready", "applied", "the node shows it, and `current` points at it"),
        Row("applying", "fail", "failed", "the node said why; the version before is wanted again"),
        Row("applying", "supersede", "superseded", "another version of the bundle was asked for, or a release"),
        Row("applying", "remove", "removed", "the bundle is taken off the machine"),
        Row("applied", "rollback", STAYS, "where a version lies beside it"),
        Row("applied", "repair", STAYS, "its image is checked, and fetched again if it is damaged"),
        Row("applied", "keep", "kept", "another version is current; this one lies beside it"),
        Row("applied", "replace", "replaced", "the same version was applied again"),
        Row("applied", "remove", "removed", "the bundle is taken off the machine"),
        Row("kept", "replace", "replaced", "it was applied again, or too many lie beside the current one"),
        Row("kept", "remove", "removed", "the bundle is taken off the machine"),
    ),
)

ALL = (ALLOCATION, OPERATION, NODE, SLOT, CLAIM, DELIVERY, RESERVATION, RUNTIME_BUNDLE, ALLOCATION_RUNTIME)

# The states in which an allocation costs money.
COSTING = frozenset({"active", "restarting"})
