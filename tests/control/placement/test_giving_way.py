"""Who gives way: nobody without need, the fewest, of those the cheapest; never where the request may not be."""

import random
from dataclasses import replace

from gpuaas.control.placement.giving_way import Candidate, choose
from gpuaas.control.placement.plan import plan
from gpuaas.model.placement import NodeView, SlotView, Wanted

NOBODY = frozenset[str]()


def node(name: str, gpus: int, taken: int, **more: object) -> NodeView:
    slots = tuple(
        SlotView(f"{name}{n}", name, "H100", 1, (f"{name}{n}",), 8, 1024, 0, "approved", n < taken) for n in range(gpus)
    )
    return replace(NodeView(name, name, None, "ready", True, "", slots), **more)


def wanted(gpus: int, count: int = 1, **more: object) -> Wanted:
    return replace(Wanted("org", "H100", gpus, 1, 1, "any", ("gpu_slice",), count), **more)


def on(name: str, id: str, *numbers: int, ran: float = 100.0, asked: bool = False) -> Candidate:
    return Candidate(id, name, frozenset(f"{name}{n}" for n in numbers), len(numbers), ran, asked)


def ids(found: object) -> list[str]:
    assert found is not None
    return sorted(item.allocation_id for item in found.machines)


def test_nobody_where_it_fits_or_where_enough_leave_by_themselves() -> None:
    assert ids(choose([node("a", 2, 1)], wanted(1), [on("a", "x", 0)], NOBODY)) == []
    assert ids(choose([node("a", 2, 2)], wanted(1), [on("a", "x", 0)], frozenset({"a1"}))) == []


def test_nobody_where_it_does_not_help() -> None:
    assert choose([node("a", 2, 2)], wanted(2), [on("a", "x", 0)], NOBODY) is None
    assert choose([node("a", 1, 1, org_id="other")], wanted(1), [on("a", "x", 0)], NOBODY) is None
    assert choose([node("a", 1, 1, drained=True)], wanted(1), [on("a", "x", 0)], NOBODY) is None
    assert choose([node("a", 1, 1, held="somebody")], wanted(1), [on("a", "x", 0)], NOBODY) is None


def test_the_fewest_and_of_those_the_cheapest() -> None:
    both = [on("a", "x", 0, ran=9.0), on("a", "y", 1), on("b", "z", 0, 1)]
    assert ids(choose([node("a", 2, 2), node("b", 2, 2)], wanted(2), both, NOBODY)) == ["z"], "one instead of two"
    assert ids(choose([node("a", 2, 2), node("b", 2, 2)], wanted(1), both, NOBODY)) == ["x"], "one GPU instead of two"
    young = [on("a", "old", 0, ran=5000.0), on("a", "young", 1, ran=5.0)]
    assert ids(choose([node("a", 2, 2)], wanted(1), young, NOBODY)) == ["young"]


def test_who_was_asked_before_is_asked_again() -> None:
    here = [on("a", "asked", 0, ran=5000.0, asked=True), on("a", "young", 1, ran=5.0)]
    assert ids(choose([node("a", 2, 2)], wanted(1), here, NOBODY)) == ["asked"]


def test_several_machines_on_several_nodes() -> None:
    here = [on("a", "x", 0), on("b", "y", 0), on("b", "z", 1)]
    found = choose([node("a", 2, 2), node("b", 2, 2)], wanted(1, 2), here, NOBODY)
    assert len(ids(found)) == 2
    assert len(found.seats) == 2 if found else False


def test_never_more_than_needed() -> None:
    """Whoever is chosen is needed: without any one of them it does not fit."""
    for seed in range(300):
        rng = random.Random(seed)
        nodes, candidates = [], []
        for name in "abc"[: rng.randint(1, 3)]:
            size = rng.randint(1, 6)
            taken = rng.randint(0, size)
            nodes.append(node(name, size, taken))
            n = 0
            while n < taken:
                many = min(rng.choice((1, 1, 2, 3)), taken - n)
                if rng.random() < 0.7:
                    candidates.append(on(name, f"{name}-{n}", *range(n, n + many), ran=rng.random() * 100))
                n += many
        request = wanted(rng.randint(1, 4), rng.randint(1, 2))
        found = choose(nodes, request, candidates, NOBODY)
        everybody = _gone(nodes, candidates)
        if found is None:
            if request.count == 1:
                assert not plan(everybody, request).fits, seed
            continue
        assert plan(_gone(nodes, found.machines), request).fits, seed
        for item in found.machines:
            fewer = [other for other in found.machines if other is not item]
            assert not plan(_gone(nodes, fewer), request).fits, (seed, item)


def _gone(nodes: list[NodeView], gone: object) -> list[NodeView]:
    free = {id for item in gone for id in item.slot_ids}
    return [replace(n, slots=tuple(replace(s, claimed=s.claimed and s.id not in free) for s in n.slots)) for n in nodes]
