"""Placement as a pure function: a few cases by hand, then laws over generated fleets."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuaas.control.placement.free_time import earliest
from gpuaas.control.placement.plan import plan
from gpuaas.control.placement.scores import APART, LINKED, apart
from gpuaas.model.placement import NodeView, Seat, SlotView, Wanted

ORG, OTHER = "og-mine", "og-theirs"


def slot(node: str, number: int, **changes: object) -> SlotView:
    made = SlotView(f"{node}-{number}", node, "H100", 1, (f"{node}-gpu{number}",), 4, 4096, 0, "approved", False)
    return replace(made, **changes)  # type: ignore[arg-type]


def node(name: str, *slots: SlotView, **changes: object) -> NodeView:
    return replace(NodeView(name, name, None, "ready", True, "", tuple(slots)), **changes)  # type: ignore[arg-type]


def free(name: str, count: int, **changes: object) -> NodeView:
    return node(name, *(slot(name, n) for n in range(count)), **changes)


def wanted(gpus: int = 1, **changes: object) -> Wanted:
    return replace(Wanted(ORG, "H100", gpus, 1, 256, "any", ("gpu_slice",)), **changes)  # type: ignore[arg-type]


def reasons(nodes: list[NodeView], want: Wanted) -> set[str]:
    found = plan(nodes, want)
    assert not found.fits
    return {reason.code for reason in found.reasons}


def test_the_fullest_node_that_fits_is_taken() -> None:
    used = node("b", slot("b", 0, claimed=True), slot("b", 1))
    found = plan([free("a", 2), used, free("c", 2)], wanted())
    assert [seat.node_id for seat in found.seats] == ["b"]


def test_whole_nodes_stay_free_for_those_who_need_them() -> None:
    fleet = [free("a", 4), free("b", 4)]
    taken = {seat.node_id for seat in plan(fleet, wanted(count=4)).seats}
    assert len(taken) == 1


def test_slots_of_one_numa_domain_are_preferred() -> None:
    machine = node("a", *(slot("a", n, numa=n % 2) for n in range(4)))
    (seat,) = plan([machine], wanted(2)).seats
    assert len({chosen.numa for chosen in seat.slots}) == 1


def test_linked_gpus_are_preferred_to_near_ones_and_near_ones_to_any() -> None:
    """Two pairs, each with one GPU near each CPU."""
    pairs = node("a", *(slot("a", n, numa=n % 2, link_group=n // 2) for n in range(4)))
    (seat,) = plan([pairs], wanted(2)).seats
    assert (seat.link_groups, seat.numa_domains) == (1, 2)
    torn = replace(pairs, slots=(*pairs.slots[:1], replace(pairs.slots[1], claimed=True), *pairs.slots[2:]))
    torn = replace(torn, slots=(*torn.slots[:3], replace(torn.slots[3], claimed=True)))
    (seat,) = plan([torn], wanted(2)).seats
    assert (seat.link_groups, seat.numa_domains) == (2, 1)
    (seat,) = plan([torn, replace(pairs, id="z", name="z")], wanted(2)).seats
    assert seat.node_id == "z", "a whole pair on an empty node is better than two halves on a full one"


def test_within_a_switch_one_numa_domain_is_preferred() -> None:
    machine = node("a", *(slot("a", n, numa=n // 4, link_group=0) for n in range(8)))
    (seat,) = plan([machine], wanted(4)).seats
    assert (seat.link_groups, seat.numa_domains) == (1, 1)
    (seat,) = plan([machine], wanted(6)).seats
    assert (seat.link_groups, seat.numa_domains) == (1, 2)


def test_half_a_pair_goes_before_a_whole_one() -> None:
    """On one node, and on two that have the same number of free GPUs."""
    machine = node("a", *(slot("a", n, link_group=n // 2, claimed=n == 3) for n in range(4)))
    (seat,) = plan([machine], wanted(1)).seats
    assert seat.slots[0].id == "a-2"
    whole = node("a", *(slot("a", n, link_group=n // 2, claimed=n < 2) for n in range(4)))
    halves = node("b", *(slot("b", n, link_group=n // 2, claimed=n % 2 == 0) for n in range(4)))
    (seat,) = plan([whole, halves], wanted(1)).seats
    assert seat.node_id == "b"


def test_three_of_pairs_are_a_pair_and_one_of_a_torn_pair() -> None:
    machine = node("a", *(slot("a", n, link_group=n // 2, claimed=n == 1) for n in range(6)))
    (seat,) = plan([machine], wanted(3)).seats
    assert [chosen.id for chosen in sorted(seat.slots, key=lambda s: s.id)] in (
        ["a-0", "a-2", "a-3"],
        ["a-0", "a-4", "a-5"],
    )


def test_slots_of_several_gpus_add_up() -> None:
    machine = node("a", slot("a", 0), slot("a", 1, gpu_count=2), slot("a", 2, gpu_count=4))
    for gpus in range(1, 8):
        (seat,) = plan([machine], wanted(gpus)).seats
        assert seat.gpus == gpus


def test_a_dedicated_node_is_free_and_taken_whole() -> None:
    want = wanted(1, isolation="dedicated_node")
    half = node("a", slot("a", 0, claimed=True), slot("a", 1))
    (seat,) = plan([half, free("b", 3)], want).seats
    assert seat.node_id == "b"
    assert len(seat.slots) == 3
    assert reasons([half], want) == {"slot_in_use", "node_not_whole"}


def test_bare_metal_is_the_whole_node_or_nothing() -> None:
    want = wanted(2, realisations=("baremetal",))
    (seat,) = plan([free("a", 3), free("b", 2)], want).seats
    assert (seat.node_id, seat.realisation) == ("b", "baremetal")
    assert reasons([free("a", 3)], want) == {"other_size"}
    quarantined = node("a", slot("a", 0), slot("a", 1), slot("a", 2, state="quarantined"))
    assert "node_not_whole" in reasons([quarantined], want)


def test_the_offers_order_decides_where_both_realisations_fit() -> None:
    for order in (("baremetal", "gpu_slice"), ("gpu_slice", "baremetal")):
        (seat,) = plan([free("a", 2)], wanted(2, realisations=order)).seats
        assert seat.realisation == order[0]
        (seat,) = plan([free("a", 3)], wanted(2, realisations=order)).seats
        assert seat.realisation == "gpu_slice", "a whole node of another size is not what was asked for"


def test_a_node_that_somebody_has_as_a_whole_gives_nothing_more() -> None:
    machine = node("a", slot("a", 0, claimed=True, alone=True), slot("a", 1))
    assert reasons([machine], wanted()) == {"node_taken"}
    left = replace(machine, slots=tuple(replace(each, claimed=False) for each in machine.slots))
    assert plan([left], wanted()).fits
    assert earliest([machine], wanted(), {"a-0": datetime(2030, 1, 1, tzinfo=UTC)}) == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (free("a", 1, org_id=OTHER), "other_pool"),
        (free("a", 1, state="lost"), "node_not_connected"),
        (free("a", 1, state="joined"), "node_not_connected"),
        (free("a", 1, ready=False), "node_not_ready"),
        (node("a", slot("a", 0, state="proposed")), "slot_not_approved"),
        (node("a", slot("a", 0, state="quarantined")), "slot_quarantined"),
        (node("a", slot("a", 0, claimed=True)), "slot_in_use"),
        (node("a", slot("a", 0, gpu_model="A100")), "other_gpu_model"),
    ],
)
def test_each_reason_has_a_name(machine: NodeView, code: str) -> None:
    assert reasons([machine], wanted()) == {code}


def test_no_nodes_is_a_reason_too() -> None:
    assert reasons([], wanted()) == {"no_nodes"}


def test_nodes_without_slots_give_a_reason() -> None:
    assert reasons([node("a")], wanted()) == {"no_slots"}


def test_too_little_memory_or_cpu_is_a_reason() -> None:
    assert reasons([free("a", 1)], wanted(memory_mib=1 << 20)) == {"does_not_fit"}
    assert reasons([free("a", 1)], wanted(cpus=1000)) == {"does_not_fit"}
    assert reasons([free("a", 1)], wanted(cpus=1000, realisations=("baremetal",))) == {"does_not_fit"}
    assert reasons([free("a", 2)], wanted(cpus=1000, isolation="dedicated_node")) == {"does_not_fit"}


def test_part_of_a_group_is_not_enough() -> None:
    found = plan([free("a", 3)], wanted(2, count=2))
    assert found.seats == ()
    assert found.reasons[0].code == "not_enough"


def test_what_does_not_fit_is_counted_once_however_many_were_asked_for() -> None:
    fleet = [free("a", 3), free("b", 1)]
    found = plan(fleet, wanted(2, count=3))
    assert [(reason.code, reason.count) for reason in found.reasons] == [("not_enough", 1), ("does_not_fit", 2)]


slots_of = st.tuples(
    st.sampled_from([0, 1, 1, 1, 2, 4]),
    st.sampled_from(["approved", "approved", "approved", "proposed", "quarantined"]),
    st.booleans(),
    st.sampled_from(["H100", "H100", "A100", ""]),
    st.integers(0, 1),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([False, False, False, True]),
)


@st.composite
def fleets(draw: st.DrawFn) -> list[NodeView]:
    made = []
    for number in range(draw(st.integers(0, 5))):
        name = f"n{number}"
        slots = tuple(
            SlotView(
                f"{name}-{n}",
                name,
                model,
                gpus,
                ("GPU",) * gpus,
                2,
                512,
                numa,
                state,
                claimed,
                False,
                link,
                None,
                alone,
            )
            for n, (gpus, state, claimed, model, numa, link, alone) in enumerate(draw(st.lists(slots_of, max_size=6)))
        )
        org = draw(st.sampled_from([None, None, ORG, OTHER]))
        state = draw(st.sampled_from(["ready", "ready", "ready", "lost", "joined"]))
        made.append(NodeView(name, name, org, state, draw(st.booleans()) or draw(st.booleans()), "", slots))
    return made


wishes = st.builds(
    Wanted,
    org_id=st.just(ORG),
    gpu_model=st.sampled_from(["H100", "A100", ""]),
    gpu_count=st.integers(0, 5),
    cpus=st.integers(1, 6),
    memory_mib=st.integers(16, 2048),
    isolation=st.sampled_from(["any", "dedicated_node"]),
    realisations=st.sampled_from([("gpu_slice",), ("baremetal",), ("baremetal", "gpu_slice")]),
    count=st.integers(1, 4),
)


@settings(max_examples=400, deadline=None)
@given(fleets(), wishes)
def test_the_laws_of_placement(fleet: list[NodeView], want: Wanted) -> None:
    found = plan(fleet, want)
    by_id = {machine.id: machine for machine in fleet}
    assert len(found.seats) in (0, want.count), "all or none"
    if not found.fits:
        assert found.reasons, "a refusal without a reason"
        assert all(reason.message and reason.count >= 0 for reason in found.reasons)
        return
    taken = [chosen.id for seat in found.seats for chosen in seat.slots]
    assert len(taken) == len(set(taken)), "one slot, one seat"
    for seat in found.seats:
        home = by_id[seat.node_id]
        assert home.state == "ready"
        assert home.ready
        assert home.org_id in (None, want.org_id), "another tenant's pool"
        assert seat.slots, "an empty seat"
        assert not any(other.claimed and other.alone for other in home.slots), "somebody has the whole node"
        assert seat.realisation in want.realisations
        for chosen in seat.slots:
            assert chosen in home.slots, "slots of one node"
            assert chosen.state == "approved"
            assert not chosen.claimed
            assert chosen.gpu_model == want.gpu_model
        gpus = sum(chosen.gpu_count for chosen in seat.slots)
        assert sum(chosen.cpus for chosen in seat.slots) >= want.cpus
        assert sum(chosen.memory_mib for chosen in seat.slots) >= want.memory_mib
        if want.isolation == "dedicated_node" or seat.realisation == "baremetal":
            assert set(seat.slots) == set(home.slots), "somebody else is there, or could come"
            assert gpus >= want.gpu_count
        else:
            assert gpus == want.gpu_count


@st.composite
def machines(draw: st.DrawFn) -> NodeView:
    """One node of GPUs that are given out one by one; groups and domains cross each other as they like."""
    made = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.sampled_from([None, 0, 1, 2])), max_size=8))
    slots = [slot("a", n, claimed=taken, numa=numa, link_group=link) for n, (taken, numa, link) in enumerate(made)]
    return node("a", *slots)


@settings(max_examples=400, deadline=None)
@given(machines(), st.integers(1, 5))
def test_no_choice_is_nearer_or_of_fewer_groups(machine: NodeView, gpus: int) -> None:
    free = [each for each in machine.slots if each.free]
    every = [Seat("a", choice, "gpu_slice") for choice in combinations(free, gpus)]
    found = plan([machine], wanted(gpus))
    assert found.fits == bool(every)
    for seat in found.seats:
        assert apart(seat.slots) == min(apart(other.slots) for other in every)
        if apart(seat.slots) == LINKED:
            near = [other for other in every if other.link_groups == 1]
            assert seat.numa_domains == min(other.numa_domains for other in near)
        if apart(seat.slots) == APART:
            assert seat.link_groups == min(other.link_groups for other in every)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([2, 4]), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 4))
def test_no_whole_group_is_broken_while_a_torn_one_is_enough(size: int, used: list[int], gpus: int) -> None:
    slots = [
        slot("a", group * size + n, numa=group % 2, link_group=group, claimed=n < taken)
        for group, taken in enumerate(used)
        for n in range(size)
    ]
    left = Counter(each.link_group for each in slots if each.free)
    for seat in plan([node("a", *slots)], wanted(gpus)).seats:
        touched = {each.link_group for each in seat.slots}
        if any(gpus <= free < size for free in left.values()):
            assert all(left[group] < size for group in touched)


@settings(max_examples=100, deadline=None)
@given(fleets(), wishes)
def test_placement_does_not_depend_on_the_order_of_nodes(fleet: list[NodeView], want: Wanted) -> None:
    assert plan(fleet, want) == plan(list(reversed(fleet)), want)
    assert plan(fleet, want) == plan(fleet, want)


def test_the_earliest_time_is_when_enough_have_to_be_gone() -> None:
    first = datetime(2030, 1, 1, tzinfo=UTC)
    busy = node("a", *(slot("a", n, claimed=True) for n in range(3)))
    ends = {"a-0": first, "a-1": first + timedelta(hours=1)}
    assert earliest([busy], wanted(1), ends) == first
    assert earliest([busy], wanted(2), ends) == first + timedelta(hours=1)
    assert earliest([busy], wanted(3), ends) is None, "nobody knows when the third one goes"
    assert earliest([busy], wanted(1), {}) is None
    assert earliest([free("a", 1, state="lost")], wanted(1), ends) is None
