"""From facts to sessions: who came and went on a machine, and that nobody stays on one that has ended.

A node tells each fact once, but in no order: an end may be heard before its beginning, and the end of the machine
before both. Whoever records holds the allocation's row lock, so that none of these pass each other. What came before
what is told by the numbers of the node's journal, not by its clock, which somebody may set.
"""

import logging
import re
from datetime import UTC, datetime

from gpuaas.control.store import identity, logins
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import User
from gpuaas.wire.node import Fact

log = logging.getLogger(__name__)

TOLD_BY = frozenset({"session.opened", "session.closed", *logins.MACHINE_ENDED})
Data = dict[str, str]
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+@/-]{0,63}")


def record(tx: Tx, allocation: Allocation, journal: str, fact: Fact) -> dict[str, str] | None:
    """What the activity feed says about it besides, or None when the same was told before, under another number."""
    at = datetime.fromtimestamp(fact.at, UTC)
    when = logins.Told(at, journal, fact.sequence)
    session = fact.data.get("session", "")
    if fact.kind in logins.MACHINE_ENDED:
        logins.machine_ended(tx, allocation, when, _why(fact.kind, fact.data))
        return {}
    if not _SESSION.fullmatch(session):
        log.warning("a session without a usable name", extra={"fields": {"allocation_id": allocation.id}})
        return {}
    if fact.kind == "session.opened":
        user = _user(tx, fact.data.get("user_id", ""))
        news = _opened(tx, allocation, session, when, user, fact.data)
    else:
        news = logins.closed(tx, allocation, session, at, _short(fact.data.get("reason", "")) or "it ended")
        user = _user(tx, logins.user_id(tx, allocation, session) or "")
    said = {"user": user.email} if user else {}
    return said if news else None


def _opened(tx: Tx, allocation: Allocation, session: str, when: logins.Told, user: User | None, data: Data) -> bool:
    fingerprint, source = (_short(data.get(name, "")) for name in ("fingerprint", "source"))
    news = logins.opened(tx, allocation, session, when.at, user.id if user else None, fingerprint, source)
    if ended := logins.end_of_machine(tx, allocation, when):
        logins.closed(tx, allocation, session, ended.at, _why(ended.kind, ended.data))
    elif allocation.reaped_at is not None:
        logins.closed(tx, allocation, session, allocation.reaped_at, logins.RELEASED)
    return news


def _user(tx: Tx, id: str) -> User | None:
    return identity.user(tx, id) if identity.is_user_id(id) else None


def _why(kind: str, data: Data) -> str:
    rebooted = kind == "rebooted" or data.get("reason") == "reboot"
    return "the node was rebooted" if rebooted else "the machine stopped"


def _short(text: str) -> str:
    return text[:253]
