"""Tickets: once, for one node and one machine, for 15 s, and only while somebody waits."""

import asyncio
from collections.abc import Callable

import pytest

from gpuaas.control.http.streams.tickets import Meeting, Tickets
from gpuaas.kit.clock import VirtualClock
from gpuaas.wire.streams import TICKET_SECONDS

NODE, MACHINE = "nd-a", "al-a"
Try = Callable[[Tickets[str], Meeting[str], VirtualClock], None]


def issued(check: Try) -> Meeting[str]:
    async def run() -> Meeting[str]:
        clock = VirtualClock()
        tickets: Tickets[str] = Tickets(clock)
        with tickets.issue(NODE, MACHINE) as meeting:
            check(tickets, meeting, clock)
        assert tickets.redeem(meeting.ticket, NODE, MACHINE) is None, "nobody waits any more"
        return meeting

    return asyncio.run(run())


def test_a_ticket_is_good_once() -> None:
    def check(tickets: Tickets[str], meeting: Meeting[str], clock: VirtualClock) -> None:
        clock.advance(TICKET_SECONDS - 0.1)
        assert tickets.redeem(meeting.ticket, NODE, MACHINE) is meeting
        assert tickets.redeem(meeting.ticket, NODE, MACHINE) is None

    issued(check)


def test_a_ticket_expires() -> None:
    def check(tickets: Tickets[str], meeting: Meeting[str], clock: VirtualClock) -> None:
        clock.advance(TICKET_SECONDS)
        assert tickets.redeem(meeting.ticket, NODE, MACHINE) is None

    issued(check)


@pytest.mark.parametrize(("node", "machine"), [("nd-b", MACHINE), (NODE, "al-b"), ("", "")])
def test_a_ticket_of_another_node_or_machine_is_refused_and_burnt(node: str, machine: str) -> None:
    def check(tickets: Tickets[str], meeting: Meeting[str], clock: VirtualClock) -> None:
        assert tickets.redeem(meeting.ticket, node, machine) is None
        assert tickets.redeem(meeting.ticket, NODE, MACHINE) is None

    issued(check)


def test_a_guess_burns_nothing() -> None:
    def check(tickets: Tickets[str], meeting: Meeting[str], clock: VirtualClock) -> None:
        for guess in ("", meeting.ticket[:-1], meeting.ticket.upper() + "x"):
            assert tickets.redeem(guess, NODE, MACHINE) is None
        assert tickets.redeem(meeting.ticket, NODE, MACHINE) is meeting

    issued(check)


def test_whoever_came_is_let_go_and_the_ticket_is_not_shown() -> None:
    meeting = issued(lambda tickets, meeting, clock: None)
    assert meeting.over.is_set()
    assert meeting.came.cancelled()
    assert len(meeting.ticket) >= 32
    assert meeting.ticket not in repr(meeting)
