"""What must hold of runtimes: rows, specs and hosts say the same, and `current` is one version that is there (I11)."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

if TYPE_CHECKING:
    from .invariants import Look
    from .world import World

Row = dict[str, Any]
LIVE = (
    "SELECT r.*, b.digest FROM allocation_runtimes r JOIN managed_runtime_bundles b ON b.id = r.bundle_id"
    " WHERE r.ended_at IS NULL ORDER BY r.id"
)
SPECS = "SELECT id, node_id, body->'runtimes' AS wanted FROM specs WHERE body IS NOT NULL ORDER BY id"
RANK = ("applying", "applied", "kept")
Shown = dict[tuple[str, str], tuple[str, bool]]  # (bundle, version): (digest, whether it is current)


def check(world: "World", cursor: "Look", rows: dict[str, Row]) -> None:
    live = _by_machine(cursor.execute(LIVE).fetchall())
    _one_of_each(live)
    _nothing_is_left(live, rows)
    for spec in cursor.execute(SPECS).fetchall():
        row = rows[spec["id"]]
        if row["node_id"] == spec["node_id"] and row["state"] not in ("releasing", "released"):
            said, meant = _specified(spec["wanted"] or []), meaning(live[spec["id"]])
            _expect(said == meant, f"I11: the spec of {spec['id']} says {said}, its rows mean {meant}")
    for agent in world.agents:
        for id, links in agent.host.state.links.items():
            for bundle, version in links.items():
                there = agent.host.state.views.get(id, {})
                _expect(f"{bundle}/{version}" in there, f"I11: {bundle}/current dangles on {id}: {version} of {there}")


def meaning(live: list[Row]) -> Shown:
    """Of each bundle what is wanted newest is current, or else what is applied; every version that lives is there."""
    found: Shown = {}
    for slug in {row["slug"] for row in live}:
        mine = sorted((row for row in live if row["slug"] == slug), key=lambda row: RANK.index(row["state"]))
        current = mine[0]["version"] if mine[0]["state"] != "kept" else _newest(mine)
        found |= {(slug, row["version"]): (row["digest"], row["version"] == current) for row in mine}
    return found


def settled(world: "World", rows: dict[str, Row]) -> None:
    """Every wish has come to an end, and machines see what the rows say."""
    with world.monitor.cursor(row_factory=dict_row) as cursor:
        live = _by_machine(cursor.execute(LIVE).fetchall())
    hosts = {agent.journal.node_id: agent.host.state for agent in world.agents}
    for id, row in rows.items():
        if row["state"] != "active":
            continue
        waiting = [each["version"] for each in live[id] if each["state"] == "applying"]
        _expect(not waiting, f"I16: {id} still waits for {waiting}")
        meant, host = meaning(live[id]), hosts[row["node_id"]]
        wanted = {bundle: version for (bundle, version), (_, current) in meant.items() if current}
        links, view = host.links.get(id, {}), host.views.get(id, {})
        _expect(links == wanted, f"I11: {id} has {links} as current, its rows say {wanted}")
        digests = {f"{bundle}/{version}": digest for (bundle, version), (digest, _) in meant.items()}
        _expect(view == digests, f"I11: {id} sees {view}, its rows say {digests}")
        world.counts["runtimes seen"] += len(digests)


def _one_of_each(live: dict[str, list[Row]]) -> None:
    for id, mine in live.items():
        for state in ("applying", "applied"):
            many = Counter(row["slug"] for row in mine if row["state"] == state)
            twice = sorted(slug for slug, times in many.items() if times > 1)
            _expect(not twice, f"I11: of {twice} on {id}, several versions are {state}")


def _nothing_is_left(live: dict[str, list[Row]], rows: dict[str, Row]) -> None:
    gone = {id for id, mine in live.items() if mine and rows[id]["state"] in ("releasing", "released")}
    _expect(not gone, f"I11: {sorted(gone)} are released, and have runtimes")


def _by_machine(found: list[Row]) -> dict[str, list[Row]]:
    live: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        live[row["allocation_id"]].append(row)
    return live


def _newest(mine: list[Row]) -> str:
    return str(max(mine, key=lambda row: row["created_at"])["version"])


def _specified(wanted: list[Row]) -> Shown:
    return {(each["bundle"], each["version"]): (each["digest"], each.get("current", True)) for each in wanted}


def _expect(holds: bool, message: str) -> None:
    from .world import expect  # it imports what imports us

    expect(holds, message)
