"""Every type of event there is, with what its data holds. Documents, filters of webhooks and tests read this table."""

from dataclasses import dataclass
from typing import Any

from gpuaas.model.lifecycle import ALLOCATION, OPERATION

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
TEXTS: Schema = {"type": "array", "items": TEXT}
NUMBER: Schema = {"type": "integer"}
OPTIONAL_NUMBER: Schema = {"type": ["integer", "null"]}
FLAG: Schema = {"type": "boolean"}
# In the data of any event: the break-glass that gave an operator the right to cause it.
ALWAYS: dict[str, Schema] = {"break_glass": TEXT}


@dataclass(frozen=True)
class EventType:
    summary: str
    kind: str  # of the object that it is about
    data: dict[str, Schema]
    open: bool = False  # a node may say more than is listed here, as texts

    def schema(self) -> Schema:
        """Of `data`. New fields may come: whoever reads ignores what they do not know."""
        properties = {**self.data, **ALWAYS}
        return {"type": "object", "properties": properties, "additionalProperties": TEXT if self.open else True}


_MOVED = {"name": TEXT, "was": OPTIONAL_TEXT, "state": TEXT, "version": NUMBER, "since": TEXT}
_OPERATED = {"operation": TEXT, "allocation_id": TEXT, "message": TEXT}
_SAID = {"name": TEXT}
_RUNTIME = {**_SAID, "bundle": TEXT, "version": TEXT}
_INVITED = {"email": TEXT, "role": TEXT}
_SESSION = {**_SAID, "session": TEXT, "user": TEXT, "reason": TEXT}

EVENTS: dict[str, EventType] = {
    **{
        f"allocation.{state}": EventType(f"A machine became {state}", "allocation", _MOVED)
        for state in sorted(ALLOCATION.states)
    },
    **{
        f"operation.{word}": EventType(f"A long change {said}", "operation", _OPERATED)
        for word, said in (("started", "began"), *((state, state) for state in sorted(OPERATION.ends)))
    },
    "fact.exited": EventType(
        "A machine stopped by itself; `ended` says how, if the node saw it",
        "allocation",
        {**_SAID, "reason": TEXT, "ended": TEXT},
        open=True,
    ),
    "fact.rebooted": EventType("The node under a machine was rebooted", "allocation", _SAID, open=True),
    "fact.session.opened": EventType("Somebody logged in on a machine", "allocation", _SESSION, open=True),
    "fact.session.closed": EventType("A login on a machine ended", "allocation", _SESSION, open=True),
    "runtime.applied": EventType(
        "A version of a bundle is there, and current",
        "allocation",
        {**_RUNTIME, "previous": OPTIONAL_TEXT, "digest": TEXT, "by": TEXT},
    ),
    "runtime.failed": EventType(
        "A version of a bundle could not be shown; the one before is wanted again",
        "allocation",
        {**_RUNTIME, "code": TEXT, "message": TEXT},
    ),
    "runtime.removed": EventType("A bundle was taken off a machine", "allocation", _RUNTIME),
    "runtime.damaged": EventType(
        "A version that was there is not well; repair it", "allocation", {**_RUNTIME, "message": TEXT}
    ),
    "project.created": EventType("The project was made", "project", {"slug": TEXT}),
    "project.network": EventType(
        "The machines of the project may talk to each other, or not", "project", {"open": FLAG}
    ),
    "drain.started": EventType(
        "The node under a machine, or a part of it, gets nothing new; at `deadline` the machine is released",
        "allocation",
        {**_SAID, "reason": TEXT, "deadline": OPTIONAL_TEXT},
    ),
    "drain.warning": EventType(
        "The deadline of a drain comes near: the machine is released then",
        "allocation",
        {**_SAID, "reason": TEXT, "deadline": TEXT},
    ),
    "drain.released": EventType(
        "A machine was released, because its node was drained", "allocation", {**_SAID, "reason": TEXT}
    ),
    "queue.expired": EventType("A launch has waited as long as it was asked to", "allocation", _SAID),
    "preemption.warning": EventType(
        "A preemptible machine is told to give way: it is released at `due_at`",
        "allocation",
        {**_SAID, "due_at": TEXT, "seconds": NUMBER},
    ),
    "preemption.cancelled": EventType("A machine need not give way after all", "allocation", _SAID),
    "preemption.released": EventType("A preemptible machine was released for others", "allocation", _SAID),
    "reservation.booked": EventType(
        "A window was booked", "reservation", {**_SAID, "starts_at": TEXT, "ends_at": TEXT}
    ),
    "reservation.ready": EventType(
        "The place of a reservation is there: whoever booked it can launch until `until`",
        "reservation",
        {**_SAID, "until": TEXT},
    ),
    "reservation.at_risk": EventType(
        "The place of a reservation would not be there; another is looked for", "reservation", {**_SAID, "reason": TEXT}
    ),
    "reservation.safe": EventType("A reservation that was at risk has its place", "reservation", _SAID),
    "reservation.used": EventType("The machines of a reservation were launched", "reservation", _SAID),
    "reservation.expired": EventType("A reservation was given up", "reservation", {**_SAID, "reason": TEXT}),
    "reservation.cancelled": EventType("A reservation was cancelled", "reservation", _SAID),
    "project.quota": EventType(
        "A quota of the project was set or removed", "project", {"quota": TEXT, "most": OPTIONAL_NUMBER}
    ),
    "member.set": EventType("Somebody got a role in the project", "user", {"role": TEXT, "by": TEXT}),
    "member.remove": EventType("Somebody left the project", "user", {"by": TEXT}),
    "invitation.create": EventType("An address was invited into the project", "invitation", _INVITED),
    "invitation.revoke": EventType("An invitation was revoked", "invitation", _INVITED),
    "invitation.accept": EventType(
        "Somebody accepted an invitation", "invitation", {**_INVITED, "user": TEXT, "new": FLAG, "token": TEXT}
    ),
    "service_account.create": EventType(
        "An account for programs was made", "service_account", {"name": TEXT, "role": TEXT}
    ),
    "service_account.delete": EventType(
        "An account for programs was deleted; `machines` are what it leaves",
        "service_account",
        {"name": TEXT, "machines": TEXTS},
    ),
    "service_account.token": EventType(
        "An account for programs got a token", "service_account", {"token": TEXT, "scopes": TEXTS}
    ),
    "service_account.revoke_token": EventType("A token of an account ended", "service_account", {"token": TEXT}),
    "service_account.add_key": EventType(
        "An account for programs got an SSH key", "service_account", {"key": TEXT, "fingerprint": TEXT}
    ),
    "service_account.remove_key": EventType(
        "An SSH key of an account was removed", "service_account", {"fingerprint": TEXT, "machines": TEXTS}
    ),
    "usage.corrected": EventType(
        "Time that was counted is not charged after all",
        "usage",
        {"correction": TEXT, "from": TEXT, "to": TEXT, "reason": TEXT},
    ),
    "budget.alert": EventType(
        "A part of a budget is spent",
        "budget",
        {"of": TEXT, "percent": NUMBER, "month": TEXT, "amount_micros": NUMBER, "spent_micros": NUMBER},
    ),
    "statement.closed": EventType(
        "The statement of a month is final", "statement", {"month": TEXT, "amount_micros": NUMBER}
    ),
    "lease.policy": EventType(
        "How long machines of the project may stay was decided",
        "project",
        {"idle_seconds": OPTIONAL_NUMBER, "idle_gpu_percent": NUMBER, "max_seconds": OPTIONAL_NUMBER},
    ),
    "lease.warning": EventType(
        "A machine is stopped soon, because its lease ends or it does nothing",
        "allocation",
        {"name": TEXT, "reason": TEXT, "ends_at": TEXT, "seconds": NUMBER},
    ),
    "lease.ended": EventType(
        "A machine was stopped; it is released at `released_at` unless somebody extends its lease",
        "allocation",
        {"name": TEXT, "reason": TEXT, "released_at": TEXT},
    ),
    "lease.released": EventType("A machine whose lease was over is released", "allocation", {"name": TEXT}),
    "lease.extended": EventType(
        "A machine may stay longer", "allocation", {"name": TEXT, "seconds": NUMBER, "ends_at": TEXT}
    ),
    "break_glass.open": EventType(
        "An operator opened access to the tenant's objects",
        "break_glass",
        {"reason": TEXT, "expires_at": TEXT, "operator": TEXT, "replaces": TEXT},
    ),
    "break_glass.end": EventType("An operator's access to the tenant's objects was ended", "break_glass", {}),
    "break_glass.expire": EventType("An operator's access to the tenant's objects expired", "break_glass", {}),
    "webhook.created": EventType("A webhook of the project was made", "webhook", {"name": TEXT}),
    "webhook.changed": EventType("A webhook of the project was changed", "webhook", {"name": TEXT}),
    "webhook.removed": EventType("A webhook of the project was removed", "webhook", {"name": TEXT}),
}


def is_event(type: str) -> bool:
    """What a node tells of one of its machines is passed on also when this server is too old to know it."""
    return type in EVENTS or type.startswith("fact.")
