"""Runs inside a machine: makes system calls and says what each answered.

    python3 calls.py '[[57, []], [56, [268435456]]]'

Arguments that are not given make no sense. Each is made in a process of its own, which may end, hang or be killed by
what it calls. A number below zero is a call of the 32-bit ABI.
"""

import ctypes
import errno
import json
import mmap
import os
import select
import signal
import sys

HANG_SECONDS = 0.5
WRONG = -1
PR_SET_NO_NEW_PRIVS = 38
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number: int, given: list[int], answer: int) -> None:
    me = os.getpid()
    # What the C library says of a stack that vfork has shared is not an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # Only so that calls that ask for it (landlock) do not answer EPERM by themselves.
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if number < 0:
        result = call_32_bit(-number)
        name = errno.errorcode.get(-result, "?") if result < 0 else "done"
    else:
        arguments = [ctypes.c_long(value) for value in (given + 6 * [WRONG])[:6]]
        result = libc.syscall(ctypes.c_long(number), *arguments)
        name = errno.errorcode.get(ctypes.get_errno(), "?") if result == -1 else "done"
    if os.getpid() == me:  # otherwise it was a kind of fork
        os.write(answer, name.encode())
    os._exit(0)


def call_32_bit(number: int) -> int:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8" + number.to_bytes(4, "little") + b"\xcd\x80\xc3")  # mov eax, number; int 0x80; ret
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return function()


def ask(number: int, given: list[int]) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        call(number, given, write)
    os.close(write)
    ready, _, _ = select.select([read], [], [], HANG_SECONDS)
    text = os.read(read, 64).decode() if ready else "hangs"
    os.close(read)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return text or (signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "ended")


print(json.dumps([ask(number, given) for number, given in json.loads(sys.argv[1])]))
