"""GPUs that are cut into MIG instances: slots of their own, and never given out beside the GPU itself."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.kit.errors import Problem
from gpuaas.wire.node import GpuReport, Inventory, SlotProposal

PROFILE = "1g.10gb"
MODEL = f"H100 MIG {PROFILE}"
PARTS = 3


def inventory(agent: Agent, cut: Sequence[int], parts: int = PARTS) -> Inventory:
    """These GPUs of it are cut, the others whole."""
    gpus: list[GpuReport] = []
    for report in agent.inventory().gpus:
        if report.index not in cut:
            gpus.append(report)
        for part in range(parts if report.index in cut else 0):
            name = report.uuid.replace("GPU", "MIG") + f"-{part}"
            gpus.append(GpuReport(name, report.index, "nvidia", MODEL, 10240, card=report.uuid))
    slots = [SlotProposal(gpu.uuid.lower(), [gpu.uuid], 1, 1024) for gpu in gpus]
    return agent.inventory(gpus=gpus, slots=slots)


def offer_instances(cluster: Cluster) -> None:
    cluster.sql(
        "INSERT INTO offers SELECT 'of-mig', 'h100-1g', 'A part', :model, 1, 1, 256, isolation, realisations,"
        " price_micros_per_hour, true, created_at FROM offers WHERE slug = 'h100-1'",
        model=MODEL,
    )


def given_out(cluster: Cluster) -> dict[str, list[Any]]:
    """By GPU: whether each live claim is on a part of it."""
    rows = cluster.sql(
        "SELECT coalesce(s.card, s.gpus[1]) AS card, s.card IS NOT NULL AS part FROM claims c"
        " JOIN slots s ON s.id = c.slot_id WHERE c.state <> 'freed'"
    )
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row.card, []).append(row.part)
    return found


def test_instances_are_slots_of_their_own_model(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    agent.report(inventory=inventory(agent, [0]))
    found = {slot.name: (slot.gpu_model, slot.card, slot.state) for slot in cluster.slots(agent)}
    assert found["gpu-a-1"] == ("H100", None, "approved")
    assert [found[f"mig-a-0-{n}"] for n in range(PARTS)] == [(MODEL, "GPU-a-0", "approved")] * PARTS
    offer_instances(cluster)
    for name in "xyz":
        cluster.launch(name, offer="h100-1g")
    with pytest.raises(Problem, match="in use"):
        cluster.launch("one too many", offer="h100-1g")
    cluster.launch("whole", offer="h100-1")
    assert given_out(cluster) == {"GPU-a-0": [True] * PARTS, "GPU-a-1": [False]}


def test_a_gpu_that_is_begun_is_filled_before_another_is(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    agent.report(inventory=inventory(agent, [0, 1]))
    offer_instances(cluster)
    for name in "xyz":
        cluster.launch(name, offer="h100-1g")
    assert [len(parts) for parts in given_out(cluster).values()] == [PARTS]


def test_a_gpu_in_use_is_not_cut_and_a_cut_one_in_use_is_not_whole(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    id = cluster.launch("whole", offer="h100-1")
    agent.settle()
    agent.report(inventory=inventory(agent, [0]))
    assert [(slot.gpu_model, slot.state) for slot in cluster.slots(agent)] == [("H100", "quarantined")]
    cluster.release(id)
    agent.settle()
    agent.report(inventory=inventory(agent, [0]))
    assert {(slot.gpu_model, slot.state) for slot in cluster.slots(agent)} == {(MODEL, "approved")}
    offer_instances(cluster)
    cluster.launch("part", offer="h100-1g")
    agent.report(inventory=inventory(agent, []))
    assert [(slot.gpu_model, slot.state) for slot in cluster.slots(agent)] == [(MODEL, "quarantined")]


def test_a_node_that_reports_both_gets_one(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    cut, whole = inventory(agent, [0]), agent.inventory()
    agent.report(inventory=agent.inventory(gpus=[*whole.gpus, *cut.gpus], slots=[*whole.slots, *cut.slots]))
    assert [slot.gpu_model for slot in cluster.slots(agent)] == ["H100"]
    other = cluster.agent("b", gpus=1)
    stolen = GpuReport("MIG-of-another", 0, "nvidia", MODEL, 10240, card="GPU-a-0")
    other.report(inventory=other.inventory(gpus=[stolen], slots=[SlotProposal("m", ["MIG-of-another"], 1, 1024)]))
    assert cluster.slots(other) == []


def test_a_slot_from_before_its_node_said_whose_part_it_is(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    agent.report(inventory=inventory(agent, [0], parts=1))
    cluster.sql("UPDATE slot_gpus SET card = NULL, cut = NULL")
    cluster.sql("UPDATE slots SET card = NULL")
    cluster.sql("DELETE FROM cards")
    agent.report(inventory=inventory(agent, [0], parts=1))
    assert [row.card for row in cluster.sql("SELECT card FROM slot_gpus WHERE cut")] == ["GPU-a-0"]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from([[], [0], [1], [0, 1]])),
        st.tuples(st.just("launch"), st.sampled_from(["h100-1", "h100-1g", "h100-2"])),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("settle"), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whatever_happens_a_gpu_is_given_out_whole_or_in_parts(cluster: Cluster, steps: list[tuple[str, Any]]) -> None:
    if not cluster.sql("SELECT FROM offers WHERE slug = 'h100-1g'"):
        offer_instances(cluster)
    number = cluster.sql("SELECT count(*) AS n FROM nodes")[0].n
    agent = cluster.agent(f"n{number}", gpus=2)
    mine: list[str] = []
    for n, (step, what) in enumerate(steps):
        if step == "report":
            agent.report(inventory=inventory(agent, what))
        elif step == "launch":
            with suppress(Problem):  # there may be no room
                mine.append(cluster.launch(f"m{number}-{n}", offer=what))
        elif step == "release" and mine:
            cluster.release(mine.pop(what % len(mine)))
        else:
            agent.settle()
        for card, parts in given_out(cluster).items():
            assert parts == [False] or all(parts), f"{card} is given out whole and in parts"
        live = cluster.sql(
            "SELECT card, count(DISTINCT cut) AS shapes FROM slot_gpus GROUP BY card HAVING count(DISTINCT cut) > 1"
        )
        assert live == []
    for id in mine:
        cluster.release(id)
    agent.settle()
    agent.report(inventory=agent.inventory(gpus=[], slots=[]))
