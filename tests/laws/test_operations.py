"""Laws of every operation table: each step failed, each statement crashed, every frame doubled; one effect, one end.

The cluster is the simulation's, without its faults: the product's own server and agent over a real PostgreSQL.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from control import catalog
from gpuaas.control.store.embedded import Embedded
from gpuaas.control.sweeps import leases
from gpuaas.model.operation import ACCESS_UPDATE, KINDS, LAUNCH, NODE_STEPS, OF_MACHINES, RELEASE, RESTART, STOP, Kind
from gpuaas.node.steps import STEPS, TEARDOWN
from sim.actors import Client, Request
from sim.base import Base, prepare
from sim.invariants import Watch, settled
from sim.world import Limits, World

VERBS = {
    "stop": "container_stop",
    "rootfs": "rootfs_ensure",
    "devices": "devices_ensure",
    "network": "network_ensure",
    "access": "access_ensure",
    "container": "container_start",
}
REMOVALS = {step: f"{step}_remove" for step in NODE_STEPS} | {"container": "container_stop"}


@pytest.fixture(scope="module")
def base(postgres: Embedded) -> Base:
    return prepare(postgres)


@pytest.fixture
def world(base: Base, request: pytest.FixtureRequest) -> Iterator[World]:
    quiet = Limits(switching=0.0, lost_answers=0.0, lost_wakes=0.0)
    with base.database(f"laws_{abs(hash(request.node.nodeid)):x}") as url:
        world = World(1, base, url, quiet)
        world.watch = Watch(world)
        rounds(world)
        yield world
        world.close()


def rounds(world: World, count: int = 6) -> None:
    for _ in range(count):
        world.round()
        world.watch.check()
        world.tick(1.0)


def ask(world: World, verb: str, name: str, keys: tuple[str, ...] = ("desk",)) -> None:
    client = world.clients[0]
    client.made += 1
    client.request = Request(f"k-{client.made}", verb, name, keys=keys if verb == "access.update" else ())
    world.ask(client, world.servers[0])


def allocation(world: World, name: str) -> dict[str, Any]:
    row = world.monitor.execute(
        "SELECT id, state, restarts, reaped_at, generation FROM allocations WHERE name = %s", [name]
    ).fetchone()
    assert row is not None
    return dict(zip(("id", "state", "restarts", "reaped_at", "generation"), row, strict=True))


def let_in(world: World, id: str) -> list[str]:
    """The names of the keys that really open the machine; `laptop` and `desk` at first."""
    (found,) = (agent.host.state.keys[id] for agent in world.agents if id in agent.host.state.keys)
    rows = world.monitor.execute("SELECT fingerprint, name FROM ssh_keys").fetchall()
    return sorted(dict(rows)[key.fingerprint] for key in found)


def operation(world: World, id: str, kind: Kind) -> tuple[str, dict[str, str]]:
    state, phases = world.monitor.execute(
        "SELECT state, phases FROM operations WHERE allocation_id = %s AND kind = %s ORDER BY created_at DESC LIMIT 1",
        [id, kind.name],
    ).fetchone() or ("", [])
    return state, {phase["name"]: phase["state"] for phase in phases}


def test_the_tables_name_the_steps_that_the_agent_runs() -> None:
    assert tuple(step.name for step in STEPS) == NODE_STEPS
    assert tuple(step.name for step in TEARDOWN) == RELEASE.there


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_phases_are_named_once_and_in_order(kind: Kind) -> None:
    assert len(set(kind.phases)) == len(kind.phases)
    assert set(kind.there) <= set(NODE_STEPS)


def test_every_phase_of_every_operation_ends_done(world: World) -> None:
    for kind in (LAUNCH, ACCESS_UPDATE, RESTART, RELEASE):
        ask(world, kind.name, "m")
        rounds(world)
        state, phases = operation(world, allocation(world, "m")["id"], kind)
        assert state == "succeeded"
        assert phases == dict.fromkeys(kind.phases, "done")
    settled(world)


@pytest.mark.parametrize("step", LAUNCH.there)
def test_a_launch_that_fails_at_any_step_leaves_nothing(world: World, step: str) -> None:
    for agent in world.agents:
        agent.host.fail(VERBS[step], 1, transient=False)
    ask(world, "launch", "m")
    rounds(world)
    found = allocation(world, "m")
    state, phases = operation(world, found["id"], LAUNCH)
    assert (found["state"], state, phases[step]) == ("failed", "failed", "failed")
    assert found["reaped_at"] is not None
    assert not any(agent.host.state.ids() for agent in world.agents)


@pytest.mark.parametrize("step", RESTART.there)
def test_a_restart_that_fails_at_any_step_goes_back_to_the_last_good_generation(world: World, step: str) -> None:
    ask(world, "launch", "m")
    rounds(world)
    for agent in world.agents:
        agent.host.fail(VERBS[step], 1, transient=False)
    ask(world, "restart", "m")
    rounds(world)
    found = allocation(world, "m")
    state, phases = operation(world, found["id"], RESTART)
    assert (found["state"], state, phases[step]) == ("active", "failed", "failed")
    for agent in world.agents:
        agent.host.heal()
    ask(world, "restart", "m")  # a retry is a new restart, and works
    rounds(world)
    assert operation(world, found["id"], RESTART)[0] == "succeeded"
    settled(world)


@pytest.mark.parametrize("step", ["network", *ACCESS_UPDATE.there])
def test_a_change_of_keys_that_fails_goes_back_and_leaves_the_machine_alone(world: World, step: str) -> None:
    ask(world, "launch", "m")
    rounds(world)
    for agent in world.agents:
        agent.host.fail(VERBS[step], 1, transient=False)
    ask(world, "access.update", "m")
    rounds(world)
    found = allocation(world, "m")
    state, phases = operation(world, found["id"], ACCESS_UPDATE)
    assert (found["state"], state, phases["access"]) == ("active", "failed", "failed")
    assert let_in(world, found["id"]) == ["desk", "laptop"]
    ask(world, "access.update", "m")
    rounds(world)
    assert operation(world, found["id"], ACCESS_UPDATE)[0] == "succeeded"
    assert let_in(world, found["id"]) == ["desk"]
    assert states(world, found["id"]) == ["queued", "provisioning", "active"]
    assert not any(agent.interruptions for agent in world.agents)
    settled(world)


def states(world: World, id: str) -> list[str]:
    """All that the allocation has ever been."""
    told = "SELECT data->>'state' FROM events WHERE object_id = %s AND type LIKE 'allocation.%%' ORDER BY seq"
    return [row[0] for row in world.monitor.execute(told, [id]).fetchall()]


def test_a_machine_that_fails_under_a_change_of_keys_has_failed(world: World) -> None:
    ask(world, "launch", "m")
    rounds(world)
    id = allocation(world, "m")["id"]
    for agent in world.agents:
        agent.host.fail("container_start", 5, transient=False)
        agent.host.kill(id)
    ask(world, "access.update", "m")
    rounds(world, 2)
    assert (allocation(world, "m")["state"], operation(world, id, ACCESS_UPDATE)[0]) == ("failed", "failed")
    for agent in world.agents:
        agent.host.heal()
    ask(world, "restart", "m")
    rounds(world)
    assert allocation(world, "m")["state"] == "active"
    settled(world)


@pytest.mark.parametrize("order", [("access.update", "restart"), ("restart", "access.update")], ids=" then ".join)
@pytest.mark.parametrize("step", [None, *RESTART.there])
def test_a_restart_and_a_change_of_keys_at_once_both_end(
    world: World, order: tuple[str, str], step: str | None
) -> None:
    """The newest generation holds both; when it fails, both go back."""
    ask(world, "launch", "m")
    rounds(world)
    for agent in world.agents:
        if step is not None:
            agent.host.fail(VERBS[step], 1, transient=False)
    for verb in order:
        ask(world, verb, "m")
    rounds(world)
    found = allocation(world, "m")
    ends = {operation(world, found["id"], kind)[0] for kind in (RESTART, ACCESS_UPDATE)}
    assert (found["state"], ends) == ("active", {"succeeded" if step is None else "failed"})
    assert let_in(world, found["id"]) == (["desk"] if step is None else ["desk", "laptop"])
    settled(world)


def test_a_newer_change_of_keys_supersedes_and_a_release_absorbs(world: World) -> None:
    ask(world, "launch", "m")
    rounds(world)
    id = allocation(world, "m")["id"]
    for keys in (("desk",), ()):
        ask(world, "access.update", "m", keys)
    rows = "SELECT state FROM operations WHERE allocation_id = %s AND kind = 'access.update' ORDER BY generation"
    assert world.monitor.execute(rows, [id]).fetchall() == [("superseded",), ("running",)]
    ask(world, "release", "m")
    assert operation(world, id, ACCESS_UPDATE)[0] == "superseded"
    rounds(world)
    assert allocation(world, "m")["state"] == "released"
    settled(world)


@pytest.mark.parametrize("step", RELEASE.there)
def test_a_release_that_fails_at_any_step_is_tried_until_it_ends(world: World, step: str) -> None:
    ask(world, "launch", "m")
    rounds(world)
    for agent in world.agents:
        agent.host.fail(REMOVALS[step], 2)
    ask(world, "release", "m")
    rounds(world, 1)
    assert allocation(world, "m")["state"] == "releasing"
    rounds(world, 8)
    assert allocation(world, "m")["state"] == "released"
    settled(world)


# Nobody asks for a stop. Changes of runtimes are below.
@pytest.mark.parametrize("verb", [kind.name for kind in OF_MACHINES.values() if kind is not STOP])
def test_a_server_that_dies_at_any_statement_has_done_nothing_or_everything(world: World, verb: str) -> None:
    """The client asks again with the same key, at the other server."""
    died, statement = True, 0
    while died:
        statement += 1
        name = f"{verb}-{statement}"
        if verb != "launch":
            ask(world, "launch", name)
            rounds(world, 4)
        died = _dies_at(world, statement, verb, name)
        rounds(world, 4)
        found = allocation(world, name)
        assert found["state"] == ("released" if verb == "release" else "active")
        assert found["restarts"] == (1 if verb == "restart" else 0)
        if verb == "access.update":
            assert operation(world, found["id"], ACCESS_UPDATE)[0] == "succeeded"
            assert let_in(world, found["id"]) == ["desk"]
        if verb != "release":
            ask(world, "release", name)
            rounds(world, 3)
    assert statement > 15, "the verb has fewer statements than it must have"
    settled(world)
    world.verify_audit()


def test_a_server_that_dies_while_it_stops_a_machine_has_done_nothing_or_everything(world: World) -> None:
    """Nobody asks for a stop: the other server's sweep finds the machine as it is."""
    died, statement = True, 0
    while died:
        statement += 1
        name = f"leased-{statement}"
        client = world.clients[0]
        client.request = Request(name, "launch", name, seconds=4)
        world.ask(client, world.servers[0])
        rounds(world, 4)
        for server in world.servers:  # both see that it is time to tell, one does
            world.sweep(server, leases.sweep)
        world.tick(10.0)
        died = _dies_sweeping(world, statement)
        world.sweep(world.servers[1], leases.sweep)
        rounds(world, 4)
        found = allocation(world, name)
        assert found["state"] == "stopped"
        assert operation(world, found["id"], STOP) == ("succeeded", dict.fromkeys(STOP.phases, "done"))
        assert sum(agent.interruptions[found["id"]] for agent in world.agents) == 1
        ask(world, "release", name)
        rounds(world, 3)
    assert statement > 8, "the sweep has fewer statements than it must have"
    settled(world)


def _dies_sweeping(world: World, statement: int) -> bool:
    """False when the sweep was over before that many statements."""
    world.tasks.switching = 1.0
    world.sweep(world.servers[0], leases.sweep)
    for _ in range(statement - 1):
        for task in world.tasks.runnable():
            world.tasks.resume(task)
    died = bool(world.tasks.all)
    world.tasks.switching = 0.0
    if died:
        world.server_died(world.servers[0])
        world.servers[0].start(world.url, world.monitor, world._woken)
    return died


def _dies_at(world: World, statement: int, verb: str, name: str) -> bool:
    """False when the transaction was over before that many statements."""
    client: Client = world.clients[0]
    client.made += 1
    keys = ("desk",) if verb == "access.update" else ()
    return _dies_asking(world, statement, Request(f"k-{client.made}", verb, name, keys=keys))


def _dies_asking(world: World, statement: int, request: Request) -> bool:
    """The same for any request."""
    client: Client = world.clients[0]
    world.tasks.switching = 1.0
    client.request = request
    world.ask(client, world.servers[0])
    for _ in range(statement - 1):
        for task in world.tasks.runnable():
            world.tasks.resume(task)
    died = bool(world.tasks.all)
    world.tasks.switching = 0.0
    if died:
        world.server_died(world.servers[0])
        world.servers[0].start(world.url, world.monitor, world._woken)
        client.request = request
        world.ask(client, world.servers[1])
    return died


def test_every_frame_twice_equals_once(world: World) -> None:
    became = []
    for verb in ("launch", "access.update", "restart", "release"):
        ask(world, verb, "m")
        for _ in range(60):
            for agent in world.agents:
                _doubled_talk(world, agent)
        world.watch.check()
        became.append(allocation(world, "m")["state"])
    assert became == ["active", "active", "active", "released"]
    assert sum(agent.interruptions[allocation(world, "m")["id"]] for agent in world.agents) == 2
    settled(world)


def _doubled_talk(world: World, agent: Any) -> None:
    connection = agent.connection
    if connection is None:
        world.connect(agent)
        return
    for id in agent.runner.wanted():
        world.converge(agent, id)
    world.poll(agent, connection)
    connection.to_server[:] = [frame for frame in connection.to_server for _ in (1, 2)]
    while connection.to_server:
        world.serve(connection)
    if connection.session:
        world.push(connection)
    connection.to_agent[:] = [frame for frame in connection.to_agent for _ in (1, 2)]
    while connection.to_agent and agent.connection is connection:
        world.hear(agent, connection)
    world.tick(0.3)


@pytest.fixture
def tools(world: World) -> World:
    """A catalog with two versions, whose images are everywhere."""
    for version in ("1", "2"):
        catalog.publish(world.servers[0].store, "tools", version)
    for agent in world.agents:
        agent.host.every_image = True
    return world


def ask_for(world: World, verb: str, name: str, *about: str) -> None:
    client = world.clients[0]
    client.made += 1
    client.request = Request(f"k-{client.made}", verb, name, about=about)
    world.ask(client, world.servers[0])


def has(world: World, id: str) -> dict[str, str]:
    """The runtimes that a machine has, as the store thinks."""
    rows = "SELECT version, state FROM allocation_runtimes WHERE allocation_id = %s AND ended_at IS NULL"
    return dict(world.monitor.execute(rows, [id]).fetchall())


def current(world: World, id: str) -> str | None:
    """As the machine sees it."""
    return next(
        (agent.host.state.links[id].get("tools") for agent in world.agents if id in agent.host.state.links), None
    )


def test_every_phase_of_every_change_of_a_runtime_ends_done(tools: World) -> None:
    ask(tools, "launch", "m")
    rounds(tools)
    id = allocation(tools, "m")["id"]
    for verb, about in (
        ("runtime.apply", ("tools", "1")),
        ("runtime.apply", ("tools", "2")),
        ("runtime.remove", ("tools",)),
    ):
        ask_for(tools, verb, "m", *about)
        rounds(tools)
        kind = KINDS[verb]
        assert operation(tools, id, kind) == ("succeeded", dict.fromkeys(kind.phases, "done"))
        assert current(tools, id) == (about[1] if len(about) == 2 else None)
    settled(tools)


def test_a_server_that_dies_while_it_switches_a_runtime_has_done_nothing_or_everything(tools: World) -> None:
    ask(tools, "launch", "m")
    rounds(tools, 4)
    id = allocation(tools, "m")["id"]
    died, statement = True, 0
    while died:
        statement += 1
        version = str(1 + statement % 2)
        died = _dies_asking(tools, statement, Request(f"d-{statement}", "runtime.apply", "m", about=("tools", version)))
        rounds(tools, 3)
        assert operation(tools, id, KINDS["runtime.apply"])[0] == "succeeded"
        assert has(tools, id)[version] == "applied"
        assert current(tools, id) == version
    many = "SELECT count(*) FROM allocation_runtimes WHERE allocation_id = %s"
    assert tools.monitor.execute(many, [id]).fetchone() == (statement,), "each wish is there once"
    assert statement > 10, "the verb has fewer statements than it must have"
    settled(tools)
    tools.verify_audit()
