"""Everybody who is in a machine: one cgroup each, so that taking a key away ends what was started with it.

A session is opened by a connection, gets a name when sshd has accepted a key, and is closed when its sshd ends. What
it leaves running stays in its cgroup, and can be ended by its key for as long as it runs.
"""

import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.cgroup import Cgroup
from gpuaas.node.host.cgroups.kill import kill, kill_all, pids
from gpuaas.node.host.supervisor import inside, news
from gpuaas.node.host.supervisor.plan import Plan

KEYS, SESSIONS = "keys.json", "sessions.json"
MAX_UNNAMED = 64  # connections at once that have shown no key yet; sshd gives them 30 seconds
UNNAMED_SECONDS = 45.0  # and whoever holds sshd up, no more than this
MAX_OPEN = 256  # a few open files each
MAX_KEPT = 1024  # with those that have ended and left something running
MAX_LINE = 4096
END_SECONDS = 10.0  # for all that a session has started; what the kernel does not let go of takes longer
_ACCEPTED = re.compile(rb"^Accepted publickey for \S+ from .* ssh2: \S+ (SHA256:[A-Za-z0-9+/=]+)", re.MULTILINE)


class Session(Struct):
    name: str
    source: str
    opened_at: float
    pid: int  # of its sshd; 0 when that has ended
    fingerprint: str = ""
    user_id: str = ""
    closed: bool = False  # what it left behind may still run
    log: bytes = b""


class Sessions:
    def __init__(self, plan: Plan, cgroup: Cgroup, end_seconds: float = END_SECONDS) -> None:
        self._end_seconds = end_seconds
        self._plan = plan
        self._cgroup = cgroup
        self._live = Path(plan.live)
        self._news = Path(plan.news)
        self._all: dict[str, Session] = {}
        self._load()

    def open(self, machine: int, connection: socket.socket, source: str) -> tuple[Session, int] | None:
        """A session and the end of its sshd's log to read from; None when there are too many at the door."""
        there = [session for session in self._all.values() if session.pid]
        unnamed = [session for session in there if not session.fingerprint]
        if len(unnamed) >= MAX_UNNAMED or len(there) >= MAX_OPEN or len(self._all) >= MAX_KEPT:
            return None
        name = "s" + secrets.token_hex(8)
        cgroup = self._cgroup.child(name)
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            cgroup.ensure()
            fds = (connection.fileno(), connection.fileno(), writing)
            pid = inside.start(machine, cgroup, self._plan.sshd, self._plan.program, fds)
        except (OSError, HostError):
            os.close(reading)
            with suppress(HostError):
                kill(cgroup)
                cgroup.remove()
            raise
        finally:
            os.close(writing)
        session = Session(name, source, time.time(), pid)
        self._all[name] = session
        return session, reading

    def heard(self, session: Session, data: bytes) -> None:
        """What its sshd says. Only the first key counts: later lines may come from whoever is root in there."""
        if session.fingerprint:
            return
        session.log = (session.log + data)[-MAX_LINE:]
        accepted = _ACCEPTED.search(session.log)
        if accepted is None:
            return
        session.log = b""
        session.fingerprint = accepted[1].decode()
        user_id = self._keys().get(session.fingerprint)
        if user_id is None:
            # Taken away between sshd's look at the list and now.
            self._end([session], "the key was taken away")
            return
        session.user_id = user_id
        self._save()
        who = {"user_id": user_id, "fingerprint": session.fingerprint, "source": session.source}
        news.put(self._news, self._plan.id, session.name, "session.opened", session.opened_at, who)

    def ended(self, pid: int) -> None:
        """A child is gone; perhaps it was somebody's sshd."""
        for session in list(self._all.values()):
            if session.pid == pid:
                session.pid = 0
                self._closed(session, "logged out")
        self.tidy()

    def tidy(self) -> bool:
        """Forgets the sessions that have left nothing behind. Answers whether there are some to look at again."""
        late = time.time() - UNNAMED_SECONDS
        unnamed = [each for each in self._all.values() if not each.fingerprint and each.opened_at < late]
        with suppress(HostError):  # the next look is the next attempt
            self._end(unnamed, "no key was shown in time")
        for session in list(self._all.values()):
            if session.pid and not _alive(session.pid):
                session.pid = 0  # adopted: nobody told us
                self._closed(session, "logged out")
            if not session.pid and not pids(self._cgroup.child(session.name)):
                with suppress(HostError):
                    self._cgroup.child(session.name).remove()
                    del self._all[session.name]
        return any(not session.pid or not session.fingerprint for session in self._all.values())

    def keys_changed(self) -> int:
        """Ends the sessions whose key is not listed any more, or is somebody else's now, and what they started."""
        listed = self._keys()
        named = [each for each in self._all.values() if each.fingerprint]
        gone = [each for each in named if listed.get(each.fingerprint) != each.user_id]
        self._end(gone, "the key was taken away")
        return len(gone)

    def end_all(self, reason: str) -> None:
        """Half of the time is left for the rest of the machine: whoever asked for its end waits for both."""
        self._end(list(self._all.values()), reason, self._end_seconds / 2)

    def present(self) -> int:
        return sum(1 for session in self._all.values() if session.pid and session.fingerprint)

    def _end(self, sessions: Sequence[Session], reason: str, seconds: float | None = None) -> None:
        """All of them, whatever becomes of one. One that the kernel does not let go of is kept, and ended when asked
        again; the others are gone by the time this is raised."""
        cgroups = {session.name: self._cgroup.child(session.name) for session in sessions}
        stuck = kill_all(cgroups.values(), self._end_seconds if seconds is None else seconds)
        for session in sessions:
            cgroup = cgroups[session.name]
            if cgroup.path not in stuck:
                session.pid = 0
                self._closed(session, reason)
                with suppress(HostError):
                    cgroup.remove()
                self._all.pop(session.name, None)
        for error in stuck.values():
            raise error

    def _closed(self, session: Session, reason: str) -> None:
        if session.user_id and not session.closed:
            session.closed = True
            news.put(self._news, self._plan.id, session.name, "session.closed", time.time(), {"reason": reason})
        self._save()

    def _keys(self) -> dict[str, str]:
        """Who each key belongs to. Read every time: it is the agent's list, and it may be newer than anything here."""
        try:
            return msgspec.json.decode((self._live / KEYS).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return {}  # no list, nobody

    def _save(self) -> None:
        """For the supervisor that may come after this one."""
        named = [session for session in self._all.values() if session.user_id]
        aside = self._live / f".{SESSIONS}"
        aside.write_bytes(msgspec.json.encode(named))
        os.rename(aside, self._live / SESSIONS)

    def _load(self) -> None:
        if not self._plan.adopt:
            with suppress(FileNotFoundError):
                (self._live / SESSIONS).unlink()
            return
        with suppress(OSError, msgspec.MsgspecError):
            for session in msgspec.json.decode((self._live / SESSIONS).read_bytes(), type=list[Session]):
                self._all[session.name] = session


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
