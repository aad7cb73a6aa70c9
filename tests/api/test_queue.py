"""The line, over HTTP: one's own only, with the place among all."""

import httpx

from api.world import World


def test_everybody_sees_their_own(world: World, http: httpx.Client) -> None:
    answer = http.get("/api/v1/queue", headers=world.people["editor"].headers)
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert {item["project_id"] for item in items} == {world.own.project.id}
    assert {name for item in items for name in item["names"]} == {"queued", "doomed"}
    assert all(item["reasons"] and item["offer"] == "b200-1" for item in items)
    assert all(reason["nodes"] == [] for item in items for reason in item["reasons"]), "nodes are for operators"
