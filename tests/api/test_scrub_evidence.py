"""How a slot was scrubbed is for operators: it names whose machine was there, and what the node did."""

import httpx
import pytest
from sqlalchemy import text

from api.world import World

NODE = "/api/v1/nodes/node-1"
MARK = "4194304 bytes overwritten and read back as zero, sha256 ab12"
READERS = {"platform_admin", "platform_ops"}


@pytest.fixture(scope="module")
def scrubbed(world: World) -> str:
    """The slot of a machine that was released, with evidence that can be recognised."""
    id = world.own.allocations["released"]
    statement = (
        "UPDATE claims SET evidence = jsonb_set(evidence, '{0,evidence}', to_jsonb(CAST(:mark AS text)))"
        " WHERE allocation_id = :id RETURNING slot_id, evidence"
    )
    with world.store.engine.begin() as connection:
        row = connection.execute(text(statement), {"mark": MARK, "id": id}).one()
    first = row.evidence[0]["gpu"]
    with world.store.engine.begin() as connection:
        found = connection.execute(text("SELECT id FROM slots WHERE :gpu = ANY(gpus)"), {"gpu": first}).scalar_one()
        # Whatever was freed on that slot later said nothing.
        move = "UPDATE claims SET slot_id = :slot, freed_at = now() + interval '1 hour' WHERE allocation_id = :id"
        connection.execute(text(move), {"slot": found, "id": id})
    return str(found)


def test_operators_read_it(world: World, http: httpx.Client, scrubbed: str) -> None:
    for name in READERS:
        answer = http.get(NODE, headers=world.people[name].headers)
        assert answer.status_code == 200
        (slot,) = [each for each in answer.json()["slots"] if each["id"] == scrubbed]
        last = slot["last_scrub"]
        assert (last["clean"], last["allocation_id"]) == (True, world.own.allocations["released"])
        assert last["gpus"] == [{"gpu": slot["gpus"][0], "clean": True, "evidence": MARK}]


def test_nobody_else_does(world: World, http: httpx.Client, scrubbed: str) -> None:
    machine = f"/api/v1/allocations/{world.own.allocations['released']}"
    for name, person in world.people.items():
        if name in READERS:
            continue
        for path in (NODE, "/api/v1/nodes", machine, "/api/v1/allocations", "/api/v1/events"):
            answer = http.get(path, headers=person.headers)
            assert MARK not in answer.text, (name, path)
        assert http.get(NODE, headers=person.headers).status_code in (401, 403, 404), name
