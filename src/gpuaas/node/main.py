"""The agent's process: puts the parts together, and ends cleanly on SIGTERM.

Everything that decides is synchronous and elsewhere. A killed agent does no harm: machines run on without it.
"""

import asyncio
import contextlib
import logging
import signal

import gpuaas
from gpuaas.kit.clock import Clock, SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import Ids
from gpuaas.kit.log import bound
from gpuaas.node.config import AgentConfig
from gpuaas.node.connection import Connection
from gpuaas.node.host.boot import boot_id
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.interface import Disk, Host
from gpuaas.node.identity import Identity, identity
from gpuaas.node.join import join
from gpuaas.node.journal import Journal
from gpuaas.node.link import Link
from gpuaas.node.runner import Runner
from gpuaas.node.sampling import keep_sampling
from gpuaas.node.work import observe, work
from gpuaas.wire.node import LINK_PATH

log = logging.getLogger(__name__)


def run_agent(config: AgentConfig) -> None:
    """Blocks until SIGTERM or SIGINT."""
    asyncio.run(_until_signalled(config))


async def run(config: AgentConfig, host: Host, disk: Disk, stop: asyncio.Event, clock: Clock | None = None) -> None:
    """One agent, until `stop` is set."""
    clock = clock or SystemClock()
    me = identity(disk)
    journal = Journal(disk, Ids())
    if journal.node_id is None and not await _join(config, me, journal, stop):
        return
    with bound(node_id=journal.node_id):
        await _serve(config, Runner(host, journal, clock), me, stop)


def simulated_host(config: AgentConfig) -> Host:
    """A fake machine whose state outlives the agent, as a real one's does, until this machine is rebooted."""
    disk = FileDisk(config.state_dir / "fake-host", sync=False)
    return FakeHost.saved(disk, config.fake_gpus, config.name, config.address, boot_id())


async def _until_signalled(config: AgentConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    disk = FileDisk(config.state_dir)
    disk.hold()
    await run(config, simulated_host(config), disk, stop)


async def _join(config: AgentConfig, me: Identity, journal: Journal, stop: asyncio.Event) -> bool:
    """False when the agent was told to end before the server answered."""
    if not config.join_token:
        raise Problem(
            "not_joined",
            409,
            "This node has not joined a fleet.",
            "Start the agent once with a join token: `gpuaas node join-token` makes one.",
        )
    joining = asyncio.create_task(join(config.server_url, config.join_token, config.name, me))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([joining, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not joining.done():
        joining.cancel()
        return False
    journal.joined(joining.result())
    log.info("joined as %s", journal.node_id)
    return True


async def _serve(config: AgentConfig, runner: Runner, me: Identity, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    to_do, to_say = asyncio.Event(), asyncio.Event()

    def changed() -> None:
        to_do.set()
        to_say.set()

    def changed_somewhere() -> None:
        with contextlib.suppress(RuntimeError):  # a pass can outlive the loop
            loop.call_soon_threadsafe(changed)

    runner.on_change(changed_somewhere)
    link = Link(runner, runner.journal, me.sign_link, runner.clock, gpuaas.__version__)
    connection = Connection(config.link_url + LINK_PATH, link, runner.clock, to_say, heard=to_do.set)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(work(runner, to_do)),
            group.create_task(observe(runner)),
            group.create_task(connection.keep()),
            group.create_task(keep_sampling(runner, link, config.sample_seconds, to_say.set)),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
    log.info("the agent ends; its machines go on")
