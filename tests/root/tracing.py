"""Kills a process at the n-th of its system calls that change something: before the call, so after the one before it.

A tracer of our own, because `strace` counts for each process by itself and cannot tell the parts of a launch apart.
"""

import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

_SEIZE, _INTERRUPT, _CONT, _SYSCALL, _GET_EVENT, _GET_CALL = 0x4206, 0x4207, 7, 24, 0x4201, 0x420E
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC = 1, 2, 4, 8, 16
_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_STOP = 1, 2, 3, 4, 128
_CALL_STOP = signal.SIGTRAP | 0x80
_ENTRY = 1
_WALL = 0x40000000
_SETSID, _OPENAT, _OPEN = 112, 257, 2
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# On x86-64. No `close`: the death of a process closes all it has, so before and after are the same.
_NAMED = """
write=1 ioctl=16 pwrite64=18 writev=20 sendfile=40 connect=42 sendto=44 sendmsg=46 shutdown=48 bind=49 listen=50
clone=56 fork=57 vfork=58 execve=59 kill=62 flock=73 fsync=74 fdatasync=75 truncate=76 ftruncate=77 rename=82
mkdir=83 rmdir=84 creat=85 link=86 unlink=87 symlink=88 chmod=90 fchmod=91 chown=92 fchown=93 setuid=105 setgid=106
setpgid=109 setsid=112 setresuid=117 setresgid=119 pivot_root=155 prctl=157 chroot=161 mount=165 umount2=166
sethostname=170 exit_group=231 mkdirat=258 mknodat=259 fchownat=260 unlinkat=263 renameat=264 linkat=265
symlinkat=266 fchmodat=268 unshare=272 accept4=288 setns=308 renameat2=316 seccomp=317 bpf=321 execveat=322
pidfd_send_signal=424 open_tree=428 move_mount=429 fsopen=430 fsconfig=431 fsmount=432 clone3=435 mount_setattr=442
"""
_CHANGING = frozenset(int(each.partition("=")[2]) for each in _NAMED.split())
DONE = signal.SIGWINCH  # raised by the traced agent itself: this was all


class Part(Enum):
    AGENT = "agent"
    HELPER = "mount helper"
    SUPERVISOR = "supervisor"
    RUNTIME = "OCI runtime"


class _Call(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
        ("more", ctypes.c_uint64 * 2),
    )


@dataclass
class Tracer:
    """Traces what is seized and, unless it is the agent alone, all that is started from there."""

    victim: Part
    point: int  # 0: nobody is killed
    cold: bool = False  # the agent starts its helper while it is traced
    counted: int = 0
    killed: int = 0
    parts: dict[int, Part] = field(default_factory=dict)

    def seize(self, pid: int, part: Part) -> None:
        self.parts[pid] = part
        following = 0 if part is Part.AGENT and not self.cold else _FORK | _VFORK | _CLONE | _EXEC
        _ptrace(_SEIZE, pid, 0, _SYSGOOD | following)
        _ptrace(_INTERRUPT, pid, 0, 0)  # calls are seen only from a stop on
        os.waitpid(pid, _WALL)
        self._resume(pid)

    def run(self) -> None:
        """Until the victim is dead, or the agent says that it is done or ends."""
        while True:
            pid, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                if not self._stopped(pid, status):
                    return
            elif pid == self.killed or self.parts.pop(pid, None) is Part.AGENT:
                return

    def _stopped(self, pid: int, status: int) -> bool:
        number, event = os.WSTOPSIG(status), status >> 16
        self.parts.setdefault(pid, self.victim)  # a child may stop before its parent tells of it
        if number == _CALL_STOP:
            return self._called(pid)
        if event in (_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE):
            child = ctypes.c_ulong()
            _ptrace(_GET_EVENT, pid, 0, ctypes.addressof(child))
            self.parts[child.value] = Part.HELPER if self.parts[pid] is Part.AGENT else self.parts[pid]
        elif event == _EVENT_EXEC and self.parts[pid] is Part.SUPERVISOR:
            self.parts[pid] = Part.RUNTIME
        elif number == DONE and self.parts[pid] is Part.AGENT:
            return False
        passed = 0 if event or number == signal.SIGTRAP else number
        self._resume(pid, passed)
        return True

    def _called(self, pid: int) -> bool:
        call = _Call()
        _ptrace(_GET_CALL, pid, ctypes.sizeof(call), ctypes.addressof(call))
        if call.op == _ENTRY:
            if call.number == _SETSID and self.parts[pid] is Part.HELPER:
                self.parts[pid] = Part.SUPERVISOR  # nobody else there starts a session
            if self.parts[pid] is self.victim and _changes(call):
                self.counted += 1
                if self.counted == self.point:
                    self.killed = pid
                    os.kill(pid, signal.SIGKILL)
                    return True
        self._resume(pid)
        return True

    def _resume(self, pid: int, number: int = 0) -> None:
        request = _SYSCALL if self._interesting(self.parts[pid]) else _CONT
        _ptrace(request, pid, 0, number)

    def _interesting(self, part: Part) -> bool:
        """What comes before the victim has to be looked at too: the victim comes out of it."""
        order = list(Part)
        if self.victim is Part.AGENT or part is Part.AGENT:
            return part is self.victim
        return order.index(part) <= order.index(self.victim)


def traced(victim: Part, point: int, pids: dict[int, Part], go: Callable[[], None]) -> tuple[int, bool]:
    """Runs `go` with these processes traced. How many calls there were, and whether the point was reached.

    In a process of its own: when that ends, nothing is traced any more.
    """
    told, tell = os.pipe()
    tracer_pid = os.fork()
    if tracer_pid == 0:
        code = 1
        try:
            tracer = Tracer(victim, point, cold=victim is not Part.AGENT and set(pids.values()) == {Part.AGENT})
            for pid, part in pids.items():
                tracer.seize(pid, part)
            os.write(tell, b"+")
            tracer.run()
            os.write(tell, f"{tracer.counted} {tracer.killed}".encode())
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    with open(told, "rb", buffering=0) as answers:
        assert answers.read(1) == b"+", "the tracer ended"
        go()
        os.waitpid(tracer_pid, 0)
        counted, killed = answers.read(64).split()
    return int(counted), killed != b"0"


def _changes(call: _Call) -> bool:
    if call.number in (_OPEN, _OPENAT):
        return bool(call.arguments[1 if call.number == _OPEN else 2] & _WRITING)
    return call.number in _CHANGING


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong)


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        if number != 3:  # ESRCH: it has just been killed
            raise OSError(number, f"ptrace {request:#x} {pid}: {os.strerror(number)}")
