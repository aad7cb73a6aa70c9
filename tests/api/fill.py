"""How to fill the parameters and bodies of any route. A route that needs something unknown here fails the tests.

A request is about one *subject*: the object that its path names, or the project or org in its query or body. The
subject comes in variants; everything else in the request is valid.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx
from sqlalchemy import text

from api.routes import Route, schema
from api.server import IMAGES
from api.world import Person, Place, World, key_line
from control import catalog
from control.fleet import Agent, join_token
from gpuaas.control.app import keys, reservations, service_accounts
from gpuaas.control.app.oidc import s256
from gpuaas.control.app.sessions import hash_password
from gpuaas.control.store import identity, invitations, oidc, strays, tokens, webhooks
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.ids import Ids, is_id
from gpuaas.wire import node_request
from gpuaas.wire.node import Holding

OWN, SIBLING, FOREIGN, GONE, RANDOM, MALFORMED = "own", "sibling", "foreign", "gone", "random", "malformed"
VARIANTS = (OWN, SIBLING, FOREIGN, GONE, RANDOM, MALFORMED)
NOT_A_NAME = "no such"
PASSWORD = "correct horse battery"
HARMLESS = {
    "limit",
    "cursor",
    "older_than_seconds",
    "all",
    "object",
    "after",
    "since",
    "step",
    "from",
    "to",
    "by",
    "state",
}
SUBJECTS = ("allocation", "operation", "project", "org", "token", "key", "node", "reservation")

_numbers = count()
_ids = Ids()


@dataclass
class Request:
    method: str
    path: str
    params: dict[str, str]
    json: dict[str, Any] | None
    subject: str | None = None  # the reference that varies
    place: Place | None = None  # where the subject is; None: nowhere, or not in a project
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None  # instead of JSON


def subject_kind(route: Route) -> str | None:
    body = schema(route.body)["properties"] if route.body else {}
    named = (*route.path_params, *route.query_params, *body)
    return next((kind for kind in SUBJECTS if kind in named), None) if route.action != "node.join" else None


def fill(world: World, route: Route, person: Person, variant: str) -> Request | None:
    """None: this route has no such variant."""
    if world.broken:
        world.mend()
    world.asking, world.deleting = person, route.method == "delete"
    world.broken = route.body == "OpenBreakGlass"
    kind = subject_kind(route)
    if kind is None:
        return _request(world, route, None, None) if variant == OWN else None
    place = {OWN: world.own, SIBLING: world.sibling, FOREIGN: world.foreign, GONE: world.own}.get(variant)
    found = {RANDOM: _ids.new("zz"), MALFORMED: NOT_A_NAME}.get(variant) or REFERENCES[kind](
        world, route, person, variant, place
    )
    return _request(world, route, found, place) if found else None


def ask(http: httpx.Client, person: Person, request: Request) -> httpx.Response:
    """Of a stream only the beginning."""
    made = http.build_request(
        request.method,
        request.path,
        params=request.params,
        json=request.json,
        content=request.content,
        headers={**person.headers, **request.headers},
    )
    answer = http.send(made, stream=True)
    if "event-stream" in answer.headers.get("content-type", ""):
        answer._content = next(answer.iter_raw())
    else:
        answer.read()
    answer.close()
    return answer


def _request(world: World, route: Route, subject: str | None, place: Place | None) -> Request:
    kind = subject_kind(route)
    path = route.path
    for name in route.path_params:
        value = (subject or "") if name == kind else COMPANIONS[name](world, place, subject)
        path = path.replace("{" + name + "}", value)
    unknown = set(route.query_params) - HARMLESS - {kind}
    assert not unknown, f"{route}: say in fill.py how to fill {unknown}"
    params = {kind: subject} if kind in route.query_params and kind and subject else {}
    body = BODIES[route.body](world, place, subject) if route.body else None
    if body is not None and kind is not None and kind in schema(route.body or "")["properties"]:
        body[kind] = subject
    made = Request(route.method.upper(), path, params, body, subject, place)
    if "digest" in route.path_params:
        _about_an_image(world, made)
    return made


def _about_an_image(world: World, request: Request) -> None:
    """Operators bring one, nodes prove who they are."""
    if request.method == "PUT":
        request.content = catalog.content(*world.image.name.split(":"))
    else:
        IMAGES.joinpath(f"{world.image.digest}.erofs").write_bytes(catalog.content(*world.image.name.split(":")))
        at = int(time.time())
        proof = world.agent.sign(node_request.signed(request.method, request.path, at))
        named = {node_request.NODE: world.agent.node_id, node_request.TIME: str(at), node_request.SIGNATURE: proof}
        request.headers.update(named)


def _image(world: World, place: Place | None, subject: str | None) -> str:
    project_id = subject if place is not None and subject == place.project.id else None
    world.image = catalog.publish(world.store, project_id=project_id)
    return world.image.digest


def _bundle(world: World, place: Place | None, subject: str | None) -> str:
    """Of the catalog; of a project's own; or the bundle that a machine has in two versions."""
    if place is not None and subject == place.project.id:
        state = "deprecated" if world.deleting else "published"
        return catalog.publish(world.store, project_id=subject, support="custom", state=state).id
    if place is None or subject not in place.allocations.values():
        return catalog.publish(world.store).id
    if subject == place.allocations["released"]:
        return "tools"
    slug = catalog.new_slug()
    older, newer = (catalog.publish(world.store, slug, version) for version in ("1", "2"))
    row = text(
        "INSERT INTO allocation_runtimes (id, allocation_id, bundle_id, slug, version, action, previous_version, state,"
        " observed, operation_id, created_by, created_at, applied_at)"
        " VALUES (:id, :of, :bundle, :slug, :version, 'apply', '1', :state, 'ready', 'op-x', 'us-x', now(), now())"
    )
    for bundle, state in ((older, "kept"), (newer, "applied")):
        values = {"of": subject, "bundle": bundle.id, "slug": slug, "version": bundle.version, "state": state}
        world.store.transact(lambda tx, values=values: tx.conn.execute(row, {"id": tx.ids.new("ar"), **values}))
    return slug


def _apply(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    gone = text("DELETE FROM allocation_runtimes WHERE allocation_id = :id")
    world.store.transact(lambda tx: tx.conn.execute(gone, {"id": subject}))  # a machine has only so many
    return {"runtime_bundle_id": catalog.publish(world.store).id}


def _allocation(world: World, route: Route, person: Person, variant: str, place: Place) -> str:
    purpose = {"allocation.restart": "restarted", "allocation.release": "doomed"}.get(route.action, "active")
    return place.allocations["released" if variant == GONE else purpose]


def _operation(world: World, route: Route, person: Person, variant: str, place: Place) -> str:
    return place.operations["released" if variant == GONE else "active"]


def _project(world: World, route: Route, person: Person, variant: str, place: Place) -> str | None:
    return None if variant == GONE else place.project.id


def _org(world: World, route: Route, person: Person, variant: str, place: Place) -> str | None:
    return place.project.org_id if variant in (OWN, FOREIGN) else None


def _node(world: World, route: Route, person: Person, variant: str, place: Place) -> str | None:
    return {OWN: world.agent, FOREIGN: world.pool, GONE: world.removed}[variant].node_id if variant != SIBLING else None


def _owner(world: World, person: Person, variant: str) -> str:
    name = {SIBLING: "neighbour", FOREIGN: "foreigner"}.get(variant)
    if name is None:
        return person.id or world.people["editor"].id
    return world.people[name if name != person.name else "editor"].id


def _token(world: World, route: Route, person: Person, variant: str, place: Place) -> str:
    def work(tx: Tx) -> str:
        owner = _owner(world, person, variant)
        if not identity.enabled(tx, owner):
            return _ids.new("tk")
        token, _ = tokens.insert_token(tx, owner, "t", ("*",), tx.now + timedelta(hours=1))
        assert variant != GONE or tokens.revoke(tx, token.user_id, token.id)
        return token.id

    return world.store.transact(work)


def _key(world: World, route: Route, person: Person, variant: str, place: Place) -> str:
    def work(tx: Tx) -> str:
        owner = _owner(world, person, variant)
        if not identity.enabled(tx, owner):
            return _ids.new("sk")
        _, secret = tokens.insert_token(tx, owner, "t", ("*",), tx.now + timedelta(hours=1))
        caller = tokens.caller(tx, secret)
        assert caller is not None
        key = keys.add_key(tx, caller, f"k{next(_numbers)}", key_line())
        if variant == GONE:
            keys.remove_key(tx, caller, key.id)
        return key.id

    return world.store.transact(work)


def _user(world: World, place: Place | None, subject: str | None) -> str:
    if place is None:  # for what an administrator does to somebody
        email = f"u{next(_numbers)}@example.org"
        world.newest = world.store.transact(identity.insert_user, email, "U", None, None)
        return world.newest.id
    world.store.transact(identity.set_member, place.project.id, world.guest.id, "viewer")
    return world.guest.id


def _account(world: World, place: Place | None, subject: str | None) -> str:
    if place is None:
        return _ids.new("sa")
    name = f"sa{next(_numbers)}"
    world.newest = world.store.transact(service_accounts.add, place.project, name, "viewer")
    return name


def _account_token(world: World, place: Place | None, subject: str | None) -> str:
    if place is None:
        return _ids.new("tk")

    def work(tx: Tx) -> str:
        return tokens.insert_token(tx, world.newest.id, "t", ("*",), tx.now + timedelta(hours=1))[0].id

    return world.store.transact(work)


def _account_key(world: World, place: Place | None, subject: str | None) -> str:
    if place is None:
        return _ids.new("sk")
    return world.store.transact(keys.register, world.newest.id, "k", key_line()).id


def _entry(world: World, place: Place | None, subject: str | None) -> str:
    return world.break_glass((place or world.own).project.org_id)


def _invitation(world: World, place: Place | None, subject: str | None) -> str:
    """Into the project that was asked for, or, where an org is the subject, into the org."""
    if place is None:
        return _ids.new("iv")
    return _invite(world, place.project.org_id, None if is_id(subject or "", "og") else place.project.id, "x@y.org")[0]


def _invite(
    world: World, org_id: str, project_id: str | None, email: str, inviter: str | None = None
) -> tuple[str, str]:
    def work(tx: Tx) -> tuple[str, str]:
        by = identity.user(tx, inviter or "root@example.org")
        assert by is not None
        until = tx.now + timedelta(hours=1)
        role = "viewer" if project_id else "tenant_member"
        made, secret = invitations.insert_invitation(tx, org_id, project_id, email, role, by.id, until)
        return made.id, secret

    return world.store.transact(work)


def _accept(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    """Into an org that they belong to already, if there is one: what they may do stays the same."""
    org_id = next(iter(world.asking.orgs), world.home.org_id)
    admins = (person.id for person in world.people.values() if person.orgs.get(org_id) == "tenant_admin")
    return {"secret": _invite(world, org_id, None, f"{world.asking.name}@example.org", next(admins, None))[1]}


def _signup(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    secret = _invite(world, world.home.org_id, world.home.id, f"new{next(_numbers)}@example.org")[1]
    return {"secret": secret, "name": "New", "password": PASSWORD}


def _code(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    verifier, state, code = "v" * 43, _ids.secret(), f"gpc_{_ids.secret()}"

    def work(tx: Tx) -> None:
        later = tx.now + timedelta(minutes=1)
        oidc.begin(tx, state, "cookie", None, "c" * 16, s256(verifier), later)
        attempt = oidc.take(tx, state, "cookie")
        assert attempt is not None
        oidc.succeed(tx, attempt.id, world.guest.id, code, later)

    world.store.transact(work)
    return {"code": code, "verifier": verifier}


def _slot(world: World, place: Place | None, subject: str | None) -> str:
    return world.quarantine(subject or "")


def _stray(world: World, place: Place | None, subject: str | None) -> str:
    """A machine that the node has, and nobody knows."""
    world.stray = _ids.new("al")
    if subject in (world.agent.node_id, world.pool.node_id):
        world.store.transact(strays.seen, subject, Holding(world.stray, 1, 3, 0, []))
    return world.stray


def _webhook(world: World, place: Place | None, subject: str | None) -> str:
    """Of the project or org that the request is about, if it is one of ours."""
    project_id = subject if subject and subject.startswith("pj-") else None
    org_id = place.project.org_id if place is not None else ""
    if place is None or subject not in (place.project.id, org_id):
        return _ids.new("wh")

    def work(tx: Tx) -> str:
        for old in webhooks.webhooks(tx, org_id, project_id):
            webhooks.remove(tx, old.id)
        made, _ = webhooks.insert_webhook(tx, org_id, project_id, f"w{next(_numbers)}", "http://x.invalid/", ("*",))
        webhooks.change(tx, made.id, disabled_at=tx.now)  # nothing is sent
        return made.id

    return world.store.transact(work)


def _login(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    email = f"u{next(_numbers)}@example.org"
    world.store.transact(identity.insert_user, email, "U", hash_password(PASSWORD), None)
    return {"email": email, "password": PASSWORD}


def _join(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    agent, token = Agent(world.store, f"n{next(_numbers)}"), world.store.transact(join_token)
    proof = agent.sign(b"gpuaas-node-join:" + token.encode())
    return {"token": token, "name": agent.name, "public_key": agent.public_key, "signature": proof}


def _named() -> dict[str, Any]:
    return {"slug": f"s{next(_numbers)}", "name": "New"}


def _offer(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    return {**_named(), "gpu_model": "H100", "gpu_count": 1, "cpus": 1, "memory_mib": 256}


def _launch(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    return {"name": f"m{next(_numbers)}", "offer": "b200-1", "wait": True}


def _window() -> dict[str, datetime]:
    """One that nobody else has asked for: all find room on the same slot."""
    starts_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1, minutes=50 * (next(_numbers) % 2000))
    return {"starts_at": starts_at, "ends_at": starts_at + timedelta(minutes=10)}


def _new_reservation(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    window = {name: at.isoformat() for name, at in _window().items()}
    return {"name": f"r{next(_numbers)}", "offer": "h100-1", **window}


def _reservation(world: World, route: Route, person: Person, variant: str, place: Place) -> str | None:
    if variant == GONE:
        return None
    owner = {SIBLING: "neighbour", FOREIGN: "foreigner"}.get(variant, "editor")
    name = f"r{next(_numbers)}"

    def work(tx: Tx) -> str:
        caller = tokens.caller(tx, world.people[owner].secret or "")
        assert caller is not None
        asked = (name, "h100-1", place.project.id, 1, *_window().values(), None, None)
        return reservations.book(tx, caller, *asked).id

    id = world.store.transact(work)
    _reserved[id] = name
    return id


_reserved: dict[str, str] = {}


def _confirm(world: World, place: Place | None, subject: str | None) -> dict[str, Any]:
    if subject and subject.startswith("nd-"):
        return {"confirm": world.stray}
    names = {id: name for name, id in place.allocations.items()} if place else {}
    names |= _reserved
    return {"confirm": names.get(subject or "", "x")}


REFERENCES: dict[str, Callable[..., str | None]] = {
    "allocation": _allocation,
    "operation": _operation,
    "project": _project,
    "org": _org,
    "token": _token,
    "key": _key,
    "node": _node,
    "reservation": _reservation,
}
COMPANIONS: dict[str, Callable[[World, Place | None, str | None], str]] = {
    "user": _user,
    "slot": _slot,
    "stray": _stray,
    "entry": _entry,
    "invitation": _invitation,
    "account": _account,
    "token": _account_token,
    "key": _account_key,
    "month": lambda *_: "2030-01",
    "webhook": _webhook,
    "quota": lambda *_: "gpu_hours",
    "bundle": _bundle,
    "digest": _image,
}
BODIES: dict[str | None, Callable[[World, Place | None, str | None], dict[str, Any]]] = {
    "Login": _login,
    "NewReservation": _new_reservation,
    "Join": _join,
    "NewToken": lambda world, *_: {"name": "made by a test"},
    "NewKey": lambda world, *_: {"name": f"k{next(_numbers)}", "public_key": key_line()},
    "NewProject": lambda world, *_: _named(),
    "NewOrg": lambda world, *_: {**_named(), "admin": world.guest.id},
    "NewUser": lambda world, *_: {"email": f"u{next(_numbers)}@example.org", "name": "U"},
    "DisableUser": lambda world, *_: {"confirm": world.newest.email, "reason": "a test"},
    "MemberRole": lambda world, *_: {"role": "editor"},
    "NewServiceAccount": lambda world, *_: {"name": f"sa{next(_numbers)}", "role": "editor"},
    "NewServiceToken": lambda world, *_: {"name": "made by a test", "scopes": ["read"]},
    "NewInvitation": lambda world, *_: {"email": f"i{next(_numbers)}@example.org"},
    "NewOrgInvitation": lambda world, *_: {"email": f"i{next(_numbers)}@example.org"},
    "AcceptInvitation": _accept,
    "Signup": _signup,
    "OidcCode": _code,
    "OidcDomains": lambda world, *_: {"domains": [f"d{next(_numbers)}.example.org"]},
    "OidcGroups": lambda world, *_: {"groups": []},
    "OpenBreakGlass": lambda world, *_: {"org": world.own.project.org_id, "reason": "to see what happens"},
    "ProjectNetwork": lambda world, *_: {"open": True},
    "NewWebhook": lambda world, *_: {"name": f"w{next(_numbers)}", "url": "http://x.invalid/"},
    "WebhookChange": lambda world, *_: {"types": ["allocation.*"]},
    "Rotation": lambda world, *_: {"overlap_seconds": 60},
    "Replay": lambda world, place, _: {"feed": place.project.id if place else "x", "first": 1, "last": 2},
    "DrainRequest": lambda world, *_: {"reason": "a test"},
    "Quarantine": lambda world, *_: {"reason": "a test"},
    "Pool": lambda world, *_: {},
    "NewQuota": lambda world, *_: {"most": 1000},
    "NewOffer": _offer,
    "ApplyRuntime": _apply,
    "RollbackRuntime": lambda world, *_: {},
    "NewRuntimeBundle": lambda world, *_: {"manifest": catalog.manifest(catalog.new_slug(), support="custom")},
    "Launch": _launch,
    "PlanRequest": lambda world, *_: {"offer": "h100-1"},
    "Confirm": _confirm,
    "CollectImages": lambda *_: {"older_than_seconds": 86_400},
    "MachineKeys": lambda world, *_: {"keys": ["laptop"]},
    "Extend": lambda world, *_: {"seconds": 60},
    "LeasePolicyRequest": lambda world, *_: {"idle_seconds": 7200},
    "NewPriceBook": lambda world, *_: {"offers": {"h100-1": 1}},
    "NewCorrection": lambda world, *_: {"usage": world.used(), "reason": "a test"},
    "NewBudget": lambda world, *_: {"amount_micros": 1_000_000},
    "NewJoinToken": lambda world, *_: {"approve_slots": True},
    "ApproveSlots": lambda world, *_: {},
}
