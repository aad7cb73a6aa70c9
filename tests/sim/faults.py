"""What can go wrong. Each seed has a random subset of these (swarm testing), so that rare combinations come up."""

import gc
import random
from collections.abc import Callable

import databases

from .actors import Agent, Server
from .world import World

Fault = Callable[[World, random.Random], None]


def _agent(world: World, rng: random.Random) -> Agent:
    return rng.choice(world.agents)


def _dead(world: World) -> list[Server]:
    return [server for server in world.servers if not server.alive]


def server_crash(world: World, rng: random.Random) -> None:
    alive = [server for server in world.servers if server.alive]
    if alive:
        world.server_died(rng.choice(alive))


def server_return(world: World, rng: random.Random) -> None:
    for server in _dead(world)[:1]:
        server.start(world.url, world.monitor, world._woken)


def agent_crash(world: World, rng: random.Random) -> None:
    """Somewhere in the middle of what it does next."""
    agent = _agent(world, rng)
    if agent.alive:
        agent.crash_in = rng.randrange(1, 30)


def agent_return(world: World, rng: random.Random) -> None:
    for agent in [agent for agent in world.agents if not agent.alive][:1]:
        agent.start()


def reboot(world: World, rng: random.Random) -> None:
    agent = _agent(world, rng)
    agent.stop()
    world.tick(1.0)  # nobody was there before and after it at the same moment
    agent.host.reboot()


def machine_dies(world: World, rng: random.Random) -> None:
    agent = _agent(world, rng)
    running = sorted(id for id, box in agent.host.state.containers.items() if box.running)
    if running:
        agent.host.kill(rng.choice(running))


def machine_relapses(world: World, rng: random.Random) -> None:
    """It dies and cannot be started for a while: reports on one generation then contradict each other."""
    machine_dies(world, rng)
    for agent in world.agents:
        agent.host.fail("container_start", 3, "injected", transient=False)


def cut(world: World, rng: random.Random) -> None:
    world.cut(_agent(world, rng))


def partition(world: World, rng: random.Random) -> None:
    agent = _agent(world, rng)
    agent.partitioned = not agent.partitioned
    if agent.partitioned:
        world.cut(agent)


def half_open(world: World, rng: random.Random) -> None:
    """The agent has gone elsewhere; what it sent on the old connection still arrives."""
    agent = _agent(world, rng)
    if agent.alive and agent.connection:
        old = agent.connection
        world.leftover.append(old)
        world.cut(agent)


def lose(world: World, rng: random.Random) -> None:
    for connection in [agent.connection for agent in world.agents if agent.connection]:
        connection.lose(rng)


def double(world: World, rng: random.Random) -> None:
    for connection in [agent.connection for agent in world.agents if agent.connection]:
        connection.double(rng)


def reorder(world: World, rng: random.Random) -> None:
    for connection in [agent.connection for agent in world.agents if agent.connection]:
        connection.reorder(rng)


def step_fails(world: World, rng: random.Random) -> None:
    verbs = ("rootfs_ensure", "devices_ensure", "network_ensure", "access_ensure", "container_start", "container_stop")
    times, transient = rng.choice((1, 2, 3, 6)), rng.random() < 0.7
    _agent(world, rng).host.fail(rng.choice(verbs), times, "injected", transient=transient)


def teardown_fails(world: World, rng: random.Random) -> None:
    verbs = ("rootfs_remove", "devices_remove", "network_remove", "access_remove")
    _agent(world, rng).host.fail(rng.choice(verbs), rng.choice((1, 2)), "injected")


def scrub_fails(world: World, rng: random.Random) -> None:
    _agent(world, rng).host.fail("scrub", 1, "memory did not read back as zero")


def long_silence(world: World, rng: random.Random) -> None:
    world.tick(rng.choice((10.0, 20.0, 40.0)))


def backup(world: World, rng: random.Random) -> None:
    """Keep a copy of the database as it is now."""
    if world.backup is None:
        world.tasks.drain()
        for server in world.servers:
            if server.alive:
                server.store.engine.dispose()
        # A task that waited for a lock when its server died gave its connection back to a pool that is gone.
        gc.collect()
        name = f"{world.name}_backup"
        world.monitor.close()
        databases.clone(world.base.running.admin_url, world.name_now, name)
        world.backup = name
        world.reconnect_monitor()


def restore(world: World, rng: random.Random) -> None:
    """Everything since the copy is forgotten by the control plane, and by nobody else."""
    if world.backup is not None and world.restored == 0:
        world.restore()


FAULTS: dict[str, tuple[int, Fault]] = {
    "server_crash": (2, server_crash),
    "agent_crash": (3, agent_crash),
    "reboot": (1, reboot),
    "machine_dies": (2, machine_dies),
    "machine_relapses": (2, machine_relapses),
    "cut": (3, cut),
    "partition": (2, partition),
    "half_open": (2, half_open),
    "lose": (3, lose),
    "double": (3, double),
    "reorder": (3, reorder),
    "step_fails": (5, step_fails),
    "teardown_fails": (2, teardown_fails),
    "scrub_fails": (1, scrub_fails),
    "long_silence": (2, long_silence),
}
RESTORING: dict[str, tuple[int, Fault]] = {"backup": (6, backup), "restore": (3, restore)}
# What heals is always possible, or a seed would soon have nothing left alive.
HEALING: tuple[tuple[int, str, Fault], ...] = (
    (3, "server_return", server_return),
    (4, "agent_return", agent_return),
)


def swarm(rng: random.Random) -> dict[str, tuple[int, Fault]]:
    chosen = {name: fault for name, fault in FAULTS.items() if rng.random() < 0.45}
    if rng.random() < 0.12:  # copying databases is slow
        chosen |= RESTORING
    return chosen
