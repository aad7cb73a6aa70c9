"""The database that every seed starts from: two tenants, users with keys, an offer, three nodes, some runtimes."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import databases
from control.catalog import content, manifest
from gpuaas.control.app import identity as people
from gpuaas.control.app import offers
from gpuaas.control.app.runtime_bundles import described
from gpuaas.control.store import identity, keys, migrate, nodes, quotas, runtime_bundles, stores
from gpuaas.control.store.embedded import Embedded
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.ids import Ids
from gpuaas.model.identity import Caller
from gpuaas.model.permission import PLATFORM_ADMIN

NODES = 3
RUNTIMES = (("tool", "1.0"), ("tool", "2.0"), ("tool", "3.0"), ("lamp", "1.0"))
IMAGES = {hashlib.sha256(content(*each)).hexdigest(): content(*each) for each in RUNTIMES}


@dataclass
class Base:
    running: Embedded
    template: str
    nodes: list[tuple[str, bytes]]  # (node id, its private key)
    callers: list[tuple[Caller, str]]  # (who, in which project)
    operators: list[tuple[Caller, str]]  # the one of the platform, then the leads of the tenants

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A clone for one seed."""
        yield databases.clone(self.running.admin_url, self.template, name)
        databases.drop(self.running.admin_url, name)


def prepare(running: Embedded) -> Base:
    """Made once per server, the same every time: ids come from a fixed seed."""
    made: dict[str, Base] = {}

    def fill(url: str) -> None:
        migrate.upgrade(url)
        _filled(url)

    name = databases.make_template(running, "template_sim", fill)
    rng = random.Random(0)
    node_keys = [rng.randbytes(32) for _ in range(NODES)]
    url = databases.clone(running.admin_url, name, f"peek_{random.SystemRandom().getrandbits(64):x}")
    engine = connect(url, pool_size=1)
    try:
        made["base"] = Store(engine).transact(_read, running, name, node_keys)
    finally:
        engine.dispose()
        databases.drop(running.admin_url, url.rpartition("/")[2].partition("?")[0])
    return made["base"]


def _filled(url: str) -> None:
    rng = random.Random(0)
    node_keys = [rng.randbytes(32) for _ in range(NODES)]
    store = Store(connect(url, pool_size=1), VirtualClock(), Ids(rng))
    try:
        store.transact(stores.ensure)
        store.transact(_fill, node_keys)
    finally:
        store.engine.dispose()


def _fill(tx: Tx, node_keys: list[bytes]) -> None:
    offers.add_offer(
        tx, slug="h100-1", name="One", gpu_model="H100", gpu_count=1, cpus=1, memory_mib=256, isolation="any",
        realisations=["gpu_slice"], price_micros_per_hour=1,
    )  # fmt: skip
    for org in ("acme", "umbrella"):
        admin = people.add_user(tx, f"admin@{org}.org", "Admin", None, None)
        home = people.add_org(tx, org, org, admin)
        project = people.add_project(tx, home, f"{org}-lab", "Lab")
        quotas.set_(tx, project.id, home.id, "gpus", 6 if org == "acme" else 9)
        quotas.set_(tx, home.id, home.id, "gpus", 9)
        for n in range(2 if org == "acme" else 1):
            user = people.add_user(tx, f"user{n}@{org}.org", "User", None, None)
            identity.set_member(tx, project.id, user.id, "editor")
            keys.insert_key(tx, user.id, "laptop", "ssh-ed25519", "A" * 68, f"SHA256:{user.id}")
            keys.insert_key(tx, user.id, "desk", "ssh-ed25519", "B" * 68, f"SHA256:{user.id}/desk")
    for n, key in enumerate(node_keys):
        public = Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw().hex()
        nodes.insert_node(tx, f"node{n}", None, public, approve_slots=True)
    people.add_user(tx, "operator@platform.org", "Operator", None, PLATFORM_ADMIN)
    for slug, version in RUNTIMES:
        values = {**described(manifest(slug, version)), "project_id": None, "created_by": "us-sim"}
        runtime_bundles.move(tx, runtime_bundles.insert(tx, **values), "publish")


def _read(tx: Tx, running: Embedded, template: str, node_keys: list[bytes]) -> Base:
    callers = [
        _caller(tx, email, project)
        for email, project in (
            ("user0@acme.org", "acme-lab"),
            ("user1@acme.org", "acme-lab"),
            ("user0@umbrella.org", "umbrella-lab"),
        )
    ]
    leads = [_caller(tx, f"admin@{org}.org", f"{org}-lab") for org in ("acme", "umbrella")]
    operators = [_caller(tx, "operator@platform.org", None), *leads]
    found = {node.name: node.id for node in nodes.nodes(tx)}
    joined = [(found[f"node{n}"], key) for n, key in enumerate(node_keys)]
    return Base(running, template, joined, callers, operators)


def _caller(tx: Tx, email: str, project: str | None) -> tuple[Caller, str]:
    user = identity.user(tx, email)
    assert user is not None
    caller = Caller(user.id, user.email, user.name, user.platform_role, "tk-sim", ("*",))
    return caller, next((p.id for p, _ in identity.visible_projects(tx, user.id) if p.slug == project), "")
