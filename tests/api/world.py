"""A populated control plane: three projects in two orgs, everybody who could ask, machines in every state.

acme/lab     `own` below: where tenant_admin, admin, editor and viewer work
acme/side    `sibling`: the same org, another project, where `neighbour` is admin
globex/lab   `foreign`: another org with a project of the same name, where `foreigner` is tenant_admin
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import text

from control.fleet import Agent, join_token, sample
from gpuaas.control.app import allocations, keys, offers
from gpuaas.control.app import identity as people
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.store import allocations as rows
from gpuaas.control.store import break_glass, identity, logins, nodes, slots, tokens
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.model.identity import Project
from gpuaas.wire.api import Launch, LeaseRequest
from gpuaas.wire.node import GpuSample

STATES = ("queued", "provisioning", "active", "failed", "released")
DAY = timedelta(days=1)


@dataclass
class Person:
    name: str
    id: str
    secret: str | None  # of a token; None: comes without one
    platform_role: str | None = None
    valid: bool = True
    orgs: dict[str, str] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.secret is None else {"Authorization": f"Bearer {self.secret}"}

    def role_in(self, place: "Place") -> str | None:
        """As the permission table means it: a tenant_admin is admin of every project of the org."""
        tenant_admin = self.orgs.get(place.project.org_id) == "tenant_admin"
        return "admin" if tenant_admin else self.projects.get(place.project.id)


@dataclass
class Place:
    project: Project
    allocations: dict[str, str]  # state, or what it is for: id
    operations: dict[str, str]  # the same keys: id of the newest operation

    @property
    def ids(self) -> set[str]:
        return {self.project.id, *self.allocations.values(), *self.operations.values()}


def key_line() -> str:
    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def person(tx: Tx, name: str, platform_role: str | None = None, password: str | None = None) -> Person:
    user = people.add_user(tx, f"{name}@example.org", name, password, platform_role)
    made = Person(name, user.id, tokens.insert_token(tx, user.id, "test", ("*",), tx.now + DAY)[1], platform_role)
    caller = tokens.caller(tx, made.secret or "")
    assert caller is not None
    keys.add_key(tx, caller, "laptop", key_line())
    return made


def launch(tx: Tx, who: Person, place: str, name: str, **more: Any) -> str:
    caller = tokens.caller(tx, who.secret or "")
    assert caller is not None
    tx.actor = who.id
    started, _ = allocations.launch(tx, caller, Launch(name, **{"offer": "h100-1", "project": place, **more}))
    return started[0][0].id


class World:
    """Made once per module: cells change only what the next cell does not look at."""

    def __init__(self, store: Store, database_url: str) -> None:
        self.store = store
        self.root = bootstrap(database_url, email="root@example.org", password="correct horse", org="home", project="x")
        self.people: dict[str, Person] = {}
        self.broken = False  # somebody broke the glass for the last request
        self.asking: Any = None  # who asks for the next request
        self.deleting = False  # whether that takes something away
        self.newest: Any = None  # the user whom a request was made for last
        self.image: Any = None  # the runtime whose image a request is about
        self.stray = ""  # the machine on a node that nobody knows
        store.transact(self._people)
        self.home = store.transact(lambda tx: identity.projects_of(tx, identity.org(tx, "home").id)[0])  # of no place
        self.agent = self._agent("node-1", None, gpus=64)
        self.pool = self._agent("node-2", "globex", gpus=1)
        self.removed = self._agent("node-3", None, gpus=1)
        store.transact(self._remove, self.removed.node_id)
        self.own = self._place("editor", self.lab)
        self.sibling = self._place("neighbour", self.side)
        self.foreign = self._place("foreigner", self.globex)
        for who, place in (("editor", self.own), ("neighbour", self.sibling), ("foreigner", self.foreign)):
            self._add(self.people[who], place, "provisioning")
            store.transact(self._logins, place.allocations["active"], self.people[who])
            for name in ("queued", "doomed"):
                self._add(self.people[who], place, name, offer="b200-1", wait=True)

    def _people(self, tx: Tx) -> None:
        platform = {name: name for name in ("platform_admin", "platform_ops", "platform_builder")}
        members = {"admin": "admin", "editor": "editor", "viewer": "viewer", "disabled": "editor", "expired": "editor"}
        everybody = (*platform, *members, "tenant_admin", "neighbour", "foreigner", "revoked", "guest")
        found = {name: person(tx, name, platform.get(name)) for name in everybody}
        acme = self._org(tx, "acme", found["tenant_admin"])
        globex = self._org(tx, "globex", found["foreigner"])
        self.lab, self.side = (people.add_project(tx, acme, slug, slug) for slug in ("lab", "side"))
        self.globex = people.add_project(tx, globex, "lab", "lab")
        for name, role in {**members, "revoked": "editor"}.items():
            self._member(tx, found[name], self.lab, role)
        self._member(tx, found["neighbour"], self.side, "admin")
        self._invalidate(tx, found)
        found["nobody"] = Person("nobody", "", None, valid=False)
        found["garbage"] = Person("garbage", "", "gpt_" + "x" * 43, valid=False)
        self.guest = found.pop("guest")
        self.people = found
        offer = {"gpu_count": 1, "cpus": 1, "memory_mib": 256, "price_micros_per_hour": 1, "isolation": "any"}
        nowhere = {**offer, "slug": "b200-1", "name": "Nowhere to be had", "gpu_model": "B200"}
        offers.add_offer(tx, **nowhere, realisations=["gpu_slice"])

    def _remove(self, tx: Tx, node_id: str) -> None:
        node = nodes.node(tx, node_id)
        assert node is not None
        nodes.move(tx, node, "remove")

    def _org(self, tx: Tx, slug: str, admin: Person) -> Any:
        user = identity.user(tx, admin.id)
        assert user is not None
        org = people.add_org(tx, slug, slug, user)
        admin.orgs[org.id] = "tenant_admin"
        return org

    def _member(self, tx: Tx, who: Person, project: Project, role: str) -> None:
        identity.set_org_member(tx, project.org_id, who.id, "tenant_member")
        identity.set_member(tx, project.id, who.id, role)
        who.orgs[project.org_id], who.projects[project.id] = "tenant_member", role

    def _invalidate(self, tx: Tx, found: dict[str, Person]) -> None:
        tx.conn.execute(text("UPDATE users SET disabled_at = now() WHERE id = :id"), {"id": found["disabled"].id})
        expired = "UPDATE tokens SET expires_at = now() - interval '1 second' WHERE user_id = :id"
        tx.conn.execute(text(expired), {"id": found["expired"].id})
        revoked = tokens.tokens(tx, found["revoked"].id)[0]
        assert tokens.revoke(tx, revoked.user_id, revoked.id)
        for name in ("disabled", "expired", "revoked"):
            found[name].valid = False

    def _agent(self, name: str, org: str | None, gpus: int) -> Agent:
        token = self.store.transact(join_token, org)
        agent = Agent(self.store, name, gpus).join(token).connect()
        # Nobody sends heartbeats for it; the sweep must not take it for lost.
        still = "UPDATE nodes SET last_seen_at = now() + interval '1 day' WHERE id = :id"
        self.store.transact(lambda tx: tx.conn.execute(text(still), {"id": agent.node_id}))
        return agent

    def _place(self, who: str, project: Project) -> Place:
        person = self.people[who]
        made = {}
        for name in ("active", "restarted", "released"):
            lease = LeaseRequest(30 * 24 * 3600)
            made[name] = self.store.transact(launch, person, project.id, name, lease=lease)
        self.settle()
        self.release(person, made["released"], "released")
        made["failed"] = self.store.transact(launch, person, project.id, "failed")
        self.settle(failing=frozenset({"failed"}))
        self._measure(made["active"])
        return Place(project, made, {name: self.newest_operation(id) for name, id in made.items()})

    def _measure(self, id: str) -> None:
        """Twice, ten seconds apart: a rate can be told."""
        now = self.store.clock.now().timestamp()
        gpus = [GpuSample("GPU-1", 50.0, 1024, 81920, 60.5, 300.0)]
        for agent in (self.agent, self.pool):
            agent.sample(
                sample(id, now - 20, cpu_seconds=100.0, gpus=gpus),
                sample(id, now - 10, cpu_seconds=120.0, sessions=1, network_sent_bytes=5000, gpus=gpus),
            )

    def _logins(self, tx: Tx, id: str, who: Person) -> None:
        allocation = rows.by_id(tx, id)
        assert allocation is not None
        for number in range(5):
            logins.opened(tx, allocation, f"s{number}", tx.now, who.id, "SHA256:x", "192.0.2.1")

    def _add(self, who: Person, place: Place, name: str, **more: Any) -> None:
        id = self.store.transact(launch, who, place.project.id, name, **more)
        place.allocations[name], place.operations[name] = id, self.newest_operation(id)

    def release(self, who: Person, id: str, name: str) -> None:
        caller = self.store.transact(tokens.caller, who.secret)
        self.store.transact(allocations.release, caller, id, name, actor=who.id)
        self.settle()

    def settle(self, failing: frozenset[str] = frozenset()) -> None:
        for agent in (self.agent, self.pool):
            agent.settle(failing)

    def newest_operation(self, allocation_id: str) -> str:
        newest = text("SELECT id FROM operations WHERE allocation_id = :id ORDER BY created_at DESC LIMIT 1")
        return str(self.store.transact(lambda tx: tx.conn.execute(newest, {"id": allocation_id}).scalar_one()))

    def used(self) -> str:
        """The id of an hour that was counted and can be corrected."""
        made = text(
            "INSERT INTO usage (id, org_id, project_id, resource_id, component, shape, started_at, ended_at)"
            " SELECT :id, a.org_id, a.project_id, a.id, 'test', a.offer_id, now() - interval '1 hour', now()"
            " FROM allocations a WHERE a.id = :of RETURNING id"
        )
        values = {"id": self.store.ids.new("ug"), "of": self.own.allocations["active"]}
        return str(self.store.transact(lambda tx: tx.conn.execute(made, values).scalar_one()))

    def break_glass(self, org_id: str) -> str:
        """One that is open."""

        def work(tx: Tx) -> str:
            who = self.guest.id  # none of those who ask
            return break_glass.insert_entry(tx, org_id, who, "a test of it", tx.now + timedelta(hours=1)).id

        self.mend()
        self.broken = True
        return self.store.transact(work)

    def mend(self) -> None:
        """Nobody keeps the rights of the last request."""
        ended = text("UPDATE break_glass SET ended_at = now(), ended_by = 'test' WHERE ended_at IS NULL")
        self.store.transact(lambda tx: tx.conn.execute(ended))
        self.broken = False

    def quarantine(self, node_id: str) -> str:
        """The name of a slot of the node, which can be returned if the node is one of ours."""

        def work(tx: Tx) -> str:
            for slot in slots.slots(tx, node_id)[-1:]:
                if slot.state == "approved":
                    slots.move(tx, slot, "quarantine", "a test")
                return slot.name
            return "gpu-0"

        return self.store.transact(work)
