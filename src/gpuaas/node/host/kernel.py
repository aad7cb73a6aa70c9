"""System calls that Python 3.11 has no function for, as thin as they can be: numbers in, OSError out.

What a failure means to the agent is said by the callers (`asking`). Calls of 2019 and later have the same number on
every architecture; the older ones go through libc.
"""

import array
import ctypes
import errno
import fcntl
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuaas.kit.errors import HostError

RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT = 0x01, 0x02, 0x04, 0x10
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x100, 0x1000, 0x8000
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 0x1000, 0x4000, 1 << 18, 1 << 19, 1 << 20
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID = 0x00020000, 0x10000000, 0x40000000, 0x20000000
CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP = 0x08000000, 0x04000000, 0x02000000
RENAME_EXCHANGE = 2

_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _FSPICK, _OPENAT2 = 428, 429, 430, 431, 432, 433, 437
_MOUNT_SETATTR = 442
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 0x04, 0x40
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CREATE, _FSCONFIG_RECONFIGURE = 0, 1, 6, 7
_FSPICK_CLOEXEC, _FSPICK_NO_AUTOMOUNT = 1, 4
_CLOEXEC = 1  # of fsopen and fsmount
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 4, 22, 23, 24
_PR_SET_CHILD_SUBREAPER = 36
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_BPF, _BPF_PROG_QUERY, _BPF_CGROUP_DEVICE = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine, -1), 16, 6
_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, -1), 1
_NS_GET_MNTNS_ID = 0x8008B705

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# Variadic in C, and its arguments are unsigned long.
_libc.prctl.argtypes = (ctypes.c_int, *(4 * [ctypes.c_ulong]))
_libc.capset.restype = ctypes.c_int  # looked up now: its caller is in another's file system

# Trying again does not help: the kernel cannot do it, or the request itself is wrong.
_LASTING = {errno.ENOSYS, errno.ENODEV, errno.EPERM, errno.EOPNOTSUPP, errno.ELOOP, errno.ENOTDIR, errno.EINVAL}


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class _ProgramQuery(ctypes.Structure):
    _fields_ = (
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("query_flags", ctypes.c_uint32),
        ("attach_flags", ctypes.c_uint32),
        ("program_ids", ctypes.c_uint64),
        ("program_count", ctypes.c_uint32),
        ("padding", ctypes.c_uint32 * 9),
    )


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWords(ctypes.Structure):
    """Sets of 64 bits, lower halves first."""

    _fields_ = tuple(
        (f"{name}{half}", ctypes.c_uint32) for half in (0, 1) for name in ("effective", "permitted", "kept")
    )


@contextmanager
def asking(action: str, target: object, meanings: Mapping[int, str] | None = None) -> Iterator[None]:
    """What the kernel refuses inside becomes a HostError in words."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        cause = (meanings or {}).get(number) or error.strerror or str(error)
        raise HostError(action, str(target), cause, transient=number not in _LASTING) from error


def openat2(dir_fd: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    return _syscall(_OPENAT2, dir_fd, _text(path), ctypes.byref(how), ctypes.sizeof(how))


def open_tree(dir_fd: int, path: str, *, recursive: bool = False) -> int:
    """A detached copy of the mount at `path`, or of the mount that `dir_fd` is in when `path` is empty."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW
    return _syscall(_OPEN_TREE, dir_fd, _text(path), flags | (AT_RECURSIVE if recursive else 0))


def mount_setattr(
    dir_fd: int,
    path: str,
    *,
    set: int = 0,
    clear: int = 0,
    propagation: int = 0,
    userns_fd: int = 0,
    recursive: bool = False,
) -> None:
    attr = _MountAttr(set, clear, propagation, userns_fd)
    flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | (AT_RECURSIVE if recursive else 0)
    _syscall(_MOUNT_SETATTR, dir_fd, _text(path), flags, ctypes.byref(attr), ctypes.sizeof(attr))


def move_mount(mount_fd: int, target_fd: int) -> None:
    """Attaches a detached mount on the directory or file behind `target_fd`: nothing is looked up by name."""
    flags = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
    _syscall(_MOVE_MOUNT, mount_fd, b"", target_fd, b"", flags)


def fsopen(kind: str) -> int:
    return _syscall(_FSOPEN, _text(kind), _CLOEXEC)


def fsconfig(context: int, key: str, value: str | None) -> None:
    command = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
    _syscall(_FSCONFIG, context, command, _text(key), None if value is None else _text(value), 0)


def fscreate(context: int) -> None:
    _syscall(_FSCONFIG, context, _FSCONFIG_CREATE, None, None, 0)


def fspick(path: str) -> int:
    """A handle on the file system that is mounted there, to change its options. The caller closes it."""
    return _syscall(_FSPICK, AT_FDCWD, _text(path), _FSPICK_CLOEXEC | _FSPICK_NO_AUTOMOUNT)


def fsreconfigure(context: int) -> None:
    _syscall(_FSCONFIG, context, _FSCONFIG_RECONFIGURE, None, None, 0)


def fsmount(context: int, attributes: int) -> int:
    return _syscall(_FSMOUNT, context, _CLOEXEC, attributes)


def mount(source: str, target: str, flags: int) -> None:
    _checked(_libc.mount(_text(source), _text(target), None, ctypes.c_ulong(flags), None))


def umount2(target: str, flags: int) -> None:
    _checked(_libc.umount2(_text(target), flags))


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags))


def setns(fd: int, kind: int) -> None:
    _checked(_libc.setns(fd, kind))


def receive(connection: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """A message and the handles that came with it, which no program gets that is executed later.

    (`socket.recv_fds` of Python 3.11 does not pass its flags on.)
    """
    room = socket.CMSG_LEN(most * 4)
    data, ancillary, _, _ = connection.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    handles = array.array("i")
    for level, kind, said in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            handles.frombytes(said[: len(said) // handles.itemsize * handles.itemsize])
    return data, list(handles)


def mount_namespace_id() -> int:
    """Of this process; 0 on kernels (before 6.11) that do not tell."""
    fd = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        answer = fcntl.ioctl(fd, _NS_GET_MNTNS_ID, bytes(8))
    except OSError:
        return 0
    finally:
        os.close(fd)
    return int.from_bytes(answer, sys.byteorder)


def pivot_root(new: str, put_old: str) -> None:
    _checked(_libc.pivot_root(_text(new), _text(put_old)))


def syncfs(fd: int) -> None:
    """Everything written to the file system of `fd` so far is on the disk afterwards."""
    _checked(_libc.syncfs(fd))


def renameat2(old_fd: int, old: str, new_fd: int, new: str, flags: int) -> None:
    _checked(_libc.renameat2(old_fd, _text(old), new_fd, _text(new), flags))


def die_with_parent(signal_number: int, parent: int) -> None:
    """Only for the child of a process with one thread: the kernel means the thread that forked."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)  # it died before the kernel knew that we care


def outlive_parent() -> None:
    """The opposite of `die_with_parent`."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0))


def become_subreaper() -> None:
    """Whatever this process has started, and its children have left behind, becomes its own child."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def name_process(text: str) -> None:
    """What everybody sees as its command line, in place of how it was started. What does not fit is cut off."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memmove(start, _text(text)[: end - start - 1].ljust(end - start, b"\0"), end - start)


def hide_from_tracers() -> None:
    """Until the next execve, nobody may look into this process who could not do so to any on the host."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def leave_session_keyring() -> None:
    """For an empty one. Keys are found by possession, in any namespace."""
    try:
        _syscall(_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, None)
    except OSError as error:
        if error.errno != errno.ENOSYS:  # a kernel without keys
            raise


def filter_syscalls(program: bytes) -> None:
    """For ever, also across execve. Needs CAP_SYS_ADMIN in the user namespace."""
    wanted = _Filter(len(program) // 8, program)
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(wanted), 0, 0))


def limit_capabilities(mask: int) -> None:
    """Bounding, permitted and effective set become `mask`; nothing is inheritable. Needs CAP_SETPCAP."""
    for number in range(64):
        present = _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)
        if present == 1 and not mask >> number & 1:
            _checked(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0))
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(_CapabilityWords(low, low, 0, high, high, 0))))


def device_programs(cgroup_fd: int) -> int:
    """How many programs of a v2 cgroup decide about devices."""
    query = _ProgramQuery(target_fd=cgroup_fd, attach_type=_BPF_CGROUP_DEVICE)
    _syscall(_BPF, _BPF_PROG_QUERY, ctypes.byref(query), ctypes.sizeof(query))
    return int(query.program_count)


def _syscall(number: int, *arguments: object) -> int:
    # Variadic in C: without a type, ctypes would pass a 32-bit int.
    wide = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *wide))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _text(value: str) -> bytes:
    data = os.fsencode(value)
    if b"\0" in data:
        raise OSError(errno.EINVAL, "a name with a NUL byte")
    return data
