"""The time of a replica is the database's, so that all replicas have one; counted on by seconds that pass.

A server whose own clock jumps does not notice. A database whose clock jumps is noticed, because its seconds and ours no
longer agree; which of the two is right nobody can know, so that nothing that cannot be undone is done by the clock
until they agree again, or until the servers are started anew and so believe the database.
"""

import logging
from datetime import timedelta

from sqlalchemy import Engine, func, select

from gpuaas.control.store.transaction import Store
from gpuaas.kit.clock import Clock, SteadyClock

log = logging.getLogger(__name__)

TOLERANCE = timedelta(seconds=2)  # more than a round trip, less than anybody would notice


def steady(engine: Engine, source: Clock | None = None) -> SteadyClock:
    with engine.connect() as conn:
        return SteadyClock(conn.execute(select(func.clock_timestamp())).scalar_one(), source)


def compare(store: Store) -> bool:
    """Whether the database's clock and ours still agree, which `store.clock_agrees` says from now on."""
    if not isinstance(store.clock, SteadyClock):
        return True
    told = store.database_time()
    off = told - store.clock.now()
    agrees = abs(off) <= TOLERANCE
    if agrees:
        store.clock.catch_up(told)
    elif store.clock_agrees:
        log.error(
            "the database's clock jumped by %s: leases are on hold. Set its clock right, or start all servers anew if "
            "it is right now",
            off,
        )
    if agrees and not store.clock_agrees:
        log.warning("the database's clock is right again: leases go on")
    store.clock_agrees = agrees
    return agrees
