"""Every type of event there is, with what its data holds. Documents, filters of webhooks and tests read this table."""

from dataclasses import dataclass
from typing import Any

from gpuaas.model.lifecycle import ALLOCATION, OPERATION

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}


@dataclass(frozen=True)
class EventType:
    summary: str
    kind: str  # of the object that it is about
    data: dict[str, Schema]
    open: bool = False  # a node may say more than is listed here, as texts

    def schema(self) -> Schema:
        """Of `data`. New fields may come: whoever reads ignores what they do not know."""
        return {"type": "object", "properties": self.data, "additionalProperties": TEXT if self.open else True}


_MOVED = {"name": TEXT, "was": OPTIONAL_TEXT, "state": TEXT, "version": NUMBER}
_OPERATED = {"operation": TEXT, "allocation_id": TEXT, "message": TEXT}
_SAID = {"name": TEXT}
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
    "fact.exited": EventType("A machine stopped by itself", "allocation", _SAID, open=True),
    "fact.rebooted": EventType("The node under a machine was rebooted", "allocation", _SAID, open=True),
    "fact.session.opened": EventType("Somebody logged in on a machine", "allocation", _SESSION, open=True),
    "fact.session.closed": EventType("A login on a machine ended", "allocation", _SESSION, open=True),
    "project.created": EventType("The project was made", "project", {"slug": TEXT}),
    "project.network": EventType(
        "The machines of the project may talk to each other, or not", "project", {"open": FLAG}
    ),
    "member.set": EventType("Somebody got a role in the project", "user", {"role": TEXT}),
    "member.remove": EventType("Somebody left the project", "user", {}),
    "webhook.created": EventType("A webhook of the project was made", "webhook", {"name": TEXT}),
    "webhook.changed": EventType("A webhook of the project was changed", "webhook", {"name": TEXT}),
    "webhook.removed": EventType("A webhook of the project was removed", "webhook", {"name": TEXT}),
}
