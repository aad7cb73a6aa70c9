"""The first set-up of a new store: administrator, org, project, offers. Needs the database, not a running server."""

from dataclasses import dataclass
from datetime import timedelta

from gpuaas.control.app import identity as people
from gpuaas.control.app import offers as selling
from gpuaas.control.app.sessions import hash_password
from gpuaas.control.store import identity, migrate, nodes, offers, stores, tokens
from gpuaas.control.store.transaction import Store, Tx, connect, normalised

FIRST_OFFERS = (
    ("h100-1", "One H100", "H100", 1, "any", ["gpu_slice"], 2_500_000),
    ("h100-2", "Two H100", "H100", 2, "any", ["gpu_slice"], 5_000_000),
    ("h100-4", "Four H100", "H100", 4, "any", ["gpu_slice"], 10_000_000),
    ("h100-8", "A whole node of eight H100", "H100", 8, "dedicated_node", ["baremetal", "gpu_slice"], 20_000_000),
)
TOKEN_LIFETIME = timedelta(days=30)


@dataclass(frozen=True)
class Bootstrapped:
    token: str  # a fresh API token of the first administrator
    join_token: str | None  # for `node`, when no node of that name exists
    created: bool  # False: the store was set up before


def bootstrap(
    database_url: str,
    *,
    email: str,
    password: str,
    org: str,
    project: str,
    node: str | None = None,
    share: tuple[int, int] = (1, 256),
) -> Bootstrapped:
    """The first administrator, org, project and offers; done once. Needs direct access to the database.

    `share`: the CPUs and MiB of memory that the first offers give to each GPU.
    """
    database_url = normalised(database_url)
    migrate.upgrade(database_url)
    store = Store(connect(database_url, pool_size=1))
    try:
        store.transact(stores.ensure)
        return store.transact(_bootstrap, email, hash_password(password), org, project, node, share)
    finally:
        store.engine.dispose()


def _bootstrap(
    tx: Tx, email: str, password_hash: str, org: str, project: str, node: str | None, share: tuple[int, int]
) -> Bootstrapped:
    admin = identity.user(tx, email)
    created = admin is None
    if admin is None:
        admin = people.add_user(tx, email, "Administrator", password_hash, "platform_admin")
        home = people.add_org(tx, org, org.capitalize(), admin)
        people.add_project(tx, home, project, project.capitalize())
        for slug, name, model, count, isolation, realisations, price in FIRST_OFFERS:
            if offers.offer(tx, slug) is None:
                selling.add_offer(
                    tx,
                    slug=slug,
                    name=name,
                    gpu_model=model,
                    gpu_count=count,
                    cpus=share[0] * count,
                    memory_mib=share[1] * count,
                    isolation=isolation,
                    realisations=realisations,
                    price_micros_per_hour=price,
                )
    _, secret = tokens.insert_token(tx, admin.id, "gpuaas up", ("*",), tx.now + TOKEN_LIFETIME)
    join_token = None
    if node and nodes.node(tx, node) is None:
        _, join_token, _ = nodes.insert_join_token(tx, admin.id, None, True, timedelta(hours=1))
    return Bootstrapped(secret, join_token, created)
