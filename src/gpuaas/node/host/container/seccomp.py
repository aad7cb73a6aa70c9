"""The filter for system calls, twice: for the OCI runtime, and as the kernel takes it, for those who enter a machine.

Both allow the same (`tests/root/escape` asks the kernel). The program is a binary search over ranges of numbers:
whatever is compared, the rest of the program is what is left to decide, so no jump needs a label.
"""

import errno
import platform
import struct
from functools import cache
from typing import Any

from gpuaas.kit.errors import HostError
from gpuaas.node.host.container.syscalls import ALL_BITS, CONDITIONS, NUMBERS, Is, Numbers

# Of linux/bpf_common.h and linux/seccomp.h: what a word of `struct seccomp_data` is, and what can be answered.
_LOAD, _AND, _RETURN, _JUMP_EQUAL, _JUMP_AT_LEAST = 0x20, 0x54, 0x06, 0x15, 0x35
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_X32 = 0x40000000  # numbers from here on are those of the x32 ABI, on x86_64
_WORD = (1 << 32) - 1
_LONGEST_JUMP = 255

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand
Code = list[Instruction]


@cache
def oci(machine: str | None = None) -> dict[str, Any]:
    """linux.seccomp of config.json. Made once: leave it as it is."""
    numbers = _numbers(machine)
    plain = sorted(name for name in numbers.allowed if name not in CONDITIONS)
    rules: list[dict[str, Any]] = [{"names": plain, "action": "SCMP_ACT_ALLOW"}]
    for name in sorted(numbers.allowed.keys() & CONDITIONS.keys()):
        for row in CONDITIONS[name]:
            rules.append({"names": [name], "action": "SCMP_ACT_ALLOW", "args": [_oci_argument(each) for each in row]})
    rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS})
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "architectures": [numbers.oci],
        "syscalls": rules,
    }


@cache
def program(machine: str | None = None) -> bytes:
    """An array of `struct sock_filter`."""
    numbers = _numbers(machine)
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, numbers.audit),
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_search(_ranges(numbers)),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _ranges(numbers: Numbers) -> list[tuple[int, Code]]:
    """From which number on what is done, until the next."""
    denied = [_return(_ERRNO | errno.EPERM)]
    absent = [_return(_ERRNO | errno.ENOSYS)]
    decided = {number: _decision(name) for name, number in numbers.allowed.items()} | {numbers.clone3: absent}
    found: list[tuple[int, Code]] = []
    for number in range(numbers.last + 1):
        code = decided.get(number, denied)
        if not found or found[-1][1] != code:
            found.append((number, code))
    return [*found, (numbers.last + 1, absent), (_X32, [_return(_KILL)])]


def _search(ranges: list[tuple[int, Code]]) -> Code:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    assert len(below) <= _LONGEST_JUMP
    return [(_JUMP_AT_LEAST, len(below), 0, ranges[middle][0]), *below, *above]


def _decision(name: str) -> Code:
    if name not in CONDITIONS:
        return [_return(_ALLOW)]
    code = [_return(_ERRNO | errno.EPERM)]
    for row in reversed(CONDITIONS[name]):
        code = _row(row) + code
    return code


def _row(row: tuple[Is, ...]) -> Code:
    """Allows if all of it holds; otherwise goes on behind its end."""
    code = [_return(_ALLOW)]
    for argument in reversed(row):
        code = _test(argument, len(code)) + code
    return code


def _test(argument: Is, beyond: int) -> Code:
    """Goes on if it holds; otherwise skips `beyond` more. The kernel's arguments have 64 bits, a filter's words 32."""
    low = _ARGUMENTS + 8 * argument.index  # little-endian, as both architectures are
    code: Code = [(_JUMP_EQUAL, 0, beyond, argument.value & _WORD)]
    if argument.mask & _WORD != _WORD:
        code.insert(0, (_AND, 0, 0, argument.mask & _WORD))
    code.insert(0, (_LOAD, 0, 0, low))
    if argument.mask == ALL_BITS:
        code = [(_LOAD, 0, 0, low + 4), (_JUMP_EQUAL, 0, beyond + len(code), argument.value >> 32), *code]
    return code


def _return(answer: int) -> Instruction:
    return (_RETURN, 0, 0, answer)


def _oci_argument(argument: Is) -> dict[str, Any]:
    if argument.mask == ALL_BITS:
        return {"index": argument.index, "value": argument.value, "op": "SCMP_CMP_EQ"}
    masked = {"value": argument.mask, "valueTwo": argument.value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"index": argument.index, **masked}


def _numbers(machine: str | None) -> Numbers:
    name = machine or platform.machine()
    if name not in NUMBERS:
        raise HostError("filter system calls on", name, "machines run on x86_64 and aarch64", transient=False)
    return NUMBERS[name]
