"""The agent's process: puts the parts together, and ends cleanly on SIGTERM.

Everything that decides is synchronous and elsewhere. A killed agent does no harm: machines run on without it.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import uvloop

import gpuaas
from gpuaas.kit import memory, traces
from gpuaas.kit.clock import Clock, SystemClock
from gpuaas.kit.errors import HostError, Problem
from gpuaas.kit.ids import Ids
from gpuaas.kit.log import bound
from gpuaas.node.config import AgentConfig
from gpuaas.node.connection import Connection
from gpuaas.node.depot import Depot
from gpuaas.node.fetch import Fetcher, keep_fetching
from gpuaas.node.hiding import Hiding, hide_first, keep_hidden
from gpuaas.node.host import doctor, findings
from gpuaas.node.host.boot import boot_id
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.interface import Disk, Host
from gpuaas.node.host.linux import LinuxConfig, LinuxHost
from gpuaas.node.host.paths import Paths
from gpuaas.node.host.runtimes import descriptor
from gpuaas.node.identity import Identity, identity
from gpuaas.node.join import join
from gpuaas.node.journal import Journal
from gpuaas.node.lanes import side_by_side
from gpuaas.node.link import Link
from gpuaas.node.notices import Notices
from gpuaas.node.runner import Runner
from gpuaas.node.sampling import keep_sampling
from gpuaas.node.servers import Servers
from gpuaas.node.streams import Streams
from gpuaas.node.upkeep import Upkeep, keep_up
from gpuaas.node.work import MAKING, observe, work
from gpuaas.wire.node import Dial, Notice

log = logging.getLogger(__name__)

TELL_SECONDS = 0.05


def run_agent(config: AgentConfig) -> None:
    """Blocks until SIGTERM or SIGINT."""
    memory.give_back()
    traces.setup("gpuaas-agent")
    try:
        uvloop.run(_until_signalled(config))  # half of what asyncio's own loop costs, also at rest
    finally:
        traces.shutdown()


async def run(
    config: AgentConfig,
    host: Host,
    disk: Disk,
    stop: asyncio.Event,
    clock: Clock | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """One agent, until `stop` is set. `prepare` makes the host ready; until it returns, nothing is made there."""
    clock = clock or SystemClock()
    me = identity(disk)
    journal = Journal(disk, Ids())
    if journal.node_id is None and not await _join(config, me, journal, stop):
        return
    with bound(node_id=journal.node_id):
        lanes = side_by_side(ThreadPoolExecutor(MAKING, thread_name_prefix="lane"))
        await _serve(config, Runner(host, journal, clock, lanes), me, stop, prepare)


def examine(
    state_dir: Path, simulate_gpus: str, clear_mig: str, disk_limit: str
) -> tuple[list[dict[str, object]], bool, str]:
    """What the doctor finds: as data, whether this machine can take machines, and as text."""
    found = doctor.check(Paths(state_dir), simulated_gpus=simulate_gpus, clear_mig=clear_mig, disk_limit=disk_limit)
    return [asdict(each) for each in found], findings.ready(found)[0], findings.render(found)


def join_fleet(config: AgentConfig, patience_seconds: float = 30.0) -> str:
    """Joins without starting anything; the node's id. Safe to call again: who has joined stays who it is."""

    async def joined(disk: Disk) -> str:
        journal = Journal(disk, Ids())
        if journal.node_id is None:
            try:
                async with asyncio.timeout(patience_seconds):
                    await _join(config, identity(disk), journal, asyncio.Event())
            except TimeoutError:
                hint = "Check the address, and that this host may reach it; then join again."
                raise Problem("unreachable", 503, f"{config.server_url} does not answer.", hint) from None
        assert journal.node_id is not None
        return journal.node_id

    with _alone(config) as disk:
        return asyncio.run(joined(disk))


def import_image(config: AgentConfig, archive: Path, name: str) -> str:
    """Takes a root file system (tarball, OCI archive, `docker save`) into the node's store. Answers its version."""
    return Images(_paths(config)).import_archive(archive, name)


def list_images(config: AgentConfig) -> list[str]:
    return Images(_paths(config)).versions()


def clear_host(config: AgentConfig, *, purge: bool = False) -> None:
    """Stops every machine of this node and takes away all that is not a file. Data stays; the next agent goes on.

    `purge` takes what is kept outside of the state directory too, for who deletes that next.
    """
    if config.host == "linux":
        with _alone(config):
            linux_host(config).shut_down()
            if purge:
                descriptor.forget(_paths(config))


def _paths(config: AgentConfig) -> Paths:
    return Paths(config.state_dir, config.run_dir, config.image_store, config.etc_dir)


def modelled_host(config: AgentConfig) -> Host:
    """A machine that is only data, which outlives the agent, as a real one does, until this machine is rebooted."""
    disk = FileDisk(config.state_dir / "fake-host", sync=False)
    return FakeHost.saved(disk, config.simulate_gpus or "8xH100", config.name, config.address, boot_id())


def linux_host(config: AgentConfig) -> LinuxHost:
    return LinuxHost(
        LinuxConfig(
            paths=_paths(config),
            hostname=config.name,
            address=config.address,
            simulate_gpus=config.simulate_gpus,
            clear_mig=config.clear_mig,
            prefix=config.prefix,
            interfaces=config.interfaces,
            pool=config.pool,
            denied=config.denied,
            disk_mib=config.disk_mib,
            disk_limit=config.disk_limit,
            base_image=config.base_image,
            quick_cgroups=config.quick_cgroups,
        )
    )


async def _until_signalled(config: AgentConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with _alone(config) as disk:
        if config.host == "modelled":
            await run(config, modelled_host(config), disk, stop)
            return
        host = linux_host(config)
        try:
            await run(config, host, disk, stop, prepare=host.prepare)
        finally:
            host.close()


@contextlib.contextmanager
def _alone(config: AgentConfig) -> Iterator[FileDisk]:
    """One agent per state directory."""
    disk = FileDisk(config.state_dir)
    disk.hold()
    try:
        yield disk
    finally:
        disk.close()


async def _join(config: AgentConfig, me: Identity, journal: Journal, stop: asyncio.Event) -> bool:
    """False when the agent was told to end before the server answered."""
    if not config.join_token:
        raise Problem(
            "not_joined",
            409,
            "This node has not joined a fleet.",
            "Start the agent once with a join token: `gpuaas node join-token` makes one.",
        )
    joining = asyncio.create_task(join(Servers(config.server_url), config.join_token, config.name, me))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([joining, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not joining.done():
        joining.cancel()
        return False
    journal.joined(joining.result())
    log.info("joined as %s", journal.node_id)
    return True


async def _serve(
    config: AgentConfig, runner: Runner, me: Identity, stop: asyncio.Event, prepare: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    to_do, to_say = asyncio.Event(), asyncio.Event()
    telling = False

    def changed() -> None:
        to_do.set()
        to_say.set()

    def changed_somewhere() -> None:
        with contextlib.suppress(RuntimeError):  # a pass can outlive the loop
            loop.call_soon_threadsafe(changed)

    def progressed() -> None:
        """Several steps of several machines are told together: waking everybody for each costs more than the step."""
        nonlocal telling
        if not telling:
            telling = True
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.call_later, TELL_SECONDS, tell)

    def tell() -> None:
        nonlocal telling
        telling = False
        to_say.set()

    def dial(frame: Dial) -> None:
        loop.call_soon_threadsafe(streams.wanted.put_nowait, frame)  # the link runs in a thread of its own

    def notice(frame: Notice) -> None:
        loop.call_soon_threadsafe(notices.wanted.put_nowait, frame)

    runner.on_change(changed_somewhere, progressed)
    servers = Servers(config.server_url)
    streams = Streams(runner.host, runner.journal.node_id or "", servers)
    notices = Notices(runner.host)
    link = Link(runner, runner.journal, me.sign_link, runner.clock, gpuaas.__version__, dial, notice)
    connection = Connection(servers, link, runner.clock, to_say)
    pace = config.fetch_mib_per_second * 2**20
    upkeep = Upkeep(runner, runner.clock)
    registry = config.registry()
    depot = Depot(registry, runner.clock) if registry is not None else None
    fetcher = Fetcher(runner, servers, me.sign_request, runner.clock, pace, upkeep.make_room, depot)
    hiding = Hiding(runner.host, servers) if config.hide_servers else None
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_prepared(prepare, runner, to_do, hiding)),
            group.create_task(observe(runner)),
            group.create_task(connection.keep()),
            group.create_task(streams.keep()),
            group.create_task(notices.keep()),
            group.create_task(keep_fetching(fetcher)),
            group.create_task(keep_up(upkeep)),
            *([group.create_task(keep_hidden(hiding))] if hiding is not None else []),
            group.create_task(keep_sampling(runner, link, config.sample_seconds, to_say.set)),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
    with contextlib.suppress(HostError):  # the next agent asks for a little more
        runner.journal.keep_revision()
    log.info("the agent ends; its machines go on")


async def _prepared(prepare: Callable[[], None], runner: Runner, to_do: asyncio.Event, hiding: Hiding | None) -> None:
    """The link is there meanwhile, so that the server knows why this node takes no work yet."""
    if hiding is not None:
        await hide_first(hiding)
    await asyncio.to_thread(prepare)
    await work(runner, to_do)
