"""T10: what the kernel answers to every system call from inside, against the committed list."""

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuaas.node.host.container.syscalls import CONDITIONS, NUMBERS
from root.conftest import needs
from root.machines import Machine

pytestmark = needs("runc", "catatonit")
PROBE = Path(__file__).with_name("calls.py").read_text()
NUMBER = NUMBERS[platform.machine()].allowed
REFUSED = {"EPERM", "ENOSYS", "SIGSYS"}
LARGEST = 520
# The kernel asks no filter about these two (uretprobe, uprobe): they are for code that it has put there itself.
UNFILTERED = {335, 336} if platform.machine() == "x86_64" else set()
CLONE_NEW = [0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
Calls = Callable[[list[tuple[int, list[int]]]], list[str]]


@pytest.fixture(params=["exec", "enter"])
def calls(request: pytest.FixtureRequest, machine: Machine) -> Calls:
    """Made by a process that runc has started, or one that has entered as a session does."""
    machine.start()

    def make(wanted: list[tuple[int, list[int]]]) -> list[str]:
        done = getattr(machine, request.param)("/usr/bin/python3", "-", json.dumps(wanted), text=PROBE)
        assert done.code == 0, done.output
        answers: list[str] = json.loads(done.output)
        return answers

    return make


def test_exactly_the_list_is_allowed(calls: Calls) -> None:
    arguments = {NUMBER[name]: [is_.value for is_ in rows[0]] for name, rows in CONDITIONS.items()}
    arguments[NUMBER["futex"]] = [0, 1]  # of an operation that it does not know it says ENOSYS itself
    everything = [(number, arguments.get(number, [])) for number in range(LARGEST + 1)]
    answers = calls(everything)
    passed = {number for number, answer in enumerate(answers) if answer not in REFUSED}
    assert passed - UNFILTERED == set(NUMBER.values())


def test_what_is_too_new_is_absent_and_all_else_forbidden(calls: Calls) -> None:
    last = NUMBERS[platform.machine()].last
    refused = sorted(set(range(LARGEST + 1)) - set(NUMBER.values()) - UNFILTERED)
    wanted = ["ENOSYS" if number == 435 or number > last else "EPERM" for number in refused]
    assert calls([(number, []) for number in refused]) == wanted


def test_arguments_decide(calls: Calls) -> None:
    clone, personality, socket, pair = (NUMBER[name] for name in ("clone", "personality", "socket", "socketpair"))
    high = 1 << 32
    expected = {
        **{(clone, flag | 17, 0, 0, 0, 0): "EPERM" for flag in CLONE_NEW},
        (clone, 17, 0, 0, 0, 0): "done",
        (personality, 0xFFFFFFFF): "done",
        (personality, 0x40000): "EPERM",
        (personality, high): "EPERM",
        **{(socket, family, 2, 0): "EPERM" for family in range(50) if family not in (1, 2, 10, 16)},
        (socket, 1, 1, 0): "done",
        (socket, 2, 1 | 0x80000, 0): "done",
        (socket, 10, 2 | 0x800, 17): "done",
        (socket, 2, 2, 1): "done",  # ping
        (socket, 2, 3, 1): "EPERM",  # raw
        (socket, 10, 3 | 0x80000, 58): "EPERM",
        (socket, 2, 10, 0): "EPERM",  # packet, the old way
        (socket, 2, 5, 132): "EPERM",  # SCTP
        (socket, 16, 3, 0): "done",
        (socket, 40 + high, 1, 0): "EPERM",
        (socket, 1 + high, 1, 0): "EPERM",
        (pair, 30, 1, 0): "EPERM",
    }
    answers = calls([(number, list(given)) for number, *given in expected])
    assert dict(zip(expected, answers, strict=True)) == expected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these exist on x86_64 only")
def test_other_abis_are_no_way_around(calls: Calls) -> None:
    x32 = 0x40000000
    getpid, mount = 39, 165
    answers = calls([(x32 | getpid, []), (x32 | mount, []), (-20, []), (-21, [])])
    # SIGSEGV: a kernel without the 32-bit ABI
    assert set(answers) <= {"SIGSYS", "SIGSEGV"}
