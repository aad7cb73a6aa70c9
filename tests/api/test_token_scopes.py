"""What a token may do: its scopes cut down what its owner may do, on every route."""

from dataclasses import replace

import httpx
import pytest
from sqlalchemy import text

from api.fill import OWN, ask, fill
from api.routes import Route, routes
from api.world import DAY, Person, World
from control.fleet import join_token
from gpuaas.control.store import tokens
from gpuaas.control.store.transaction import Tx
from gpuaas.model.permission import PERMISSIONS, scope_allows

SCOPES = ("*", "read", "allocation.*", "node.*", "allocation.launch", "token.read", "event.read")


@pytest.fixture
def almighty(world: World) -> Person:
    """May do everything, so that only the scope of a token can stand in the way. One route ends all other tokens."""
    person = world.people["tenant_admin"]
    promote = text("UPDATE users SET platform_role = 'platform_admin' WHERE id = :id")

    def work(tx: Tx) -> str:
        tx.conn.execute(promote, {"id": person.id})
        return tokens.insert_token(tx, person.id, "test", ("*",), tx.now + DAY)[1]

    return replace(person, secret=world.store.transact(work))


def mint(http: httpx.Client, person: Person, *scopes: str) -> Person:
    made = http.post("/api/v1/tokens", json={"name": "scoped", "scopes": list(scopes)}, headers=person.headers)
    assert made.status_code == 201, made.text
    return replace(person, secret=made.json()["secret"])


def needed(route: Route) -> list[str]:
    """Operations of one machine are shown to whoever may see the machine."""
    of_a_machine = route.action == "operation.read" and "allocation" in route.query_params
    return [route.action, "allocation.read"] if of_a_machine else [route.action]


@pytest.mark.parametrize("scope", SCOPES)
def test_every_route_with_a_token_of_this_scope(world: World, http: httpx.Client, almighty: Person, scope: str) -> None:
    holder = mint(http, almighty, scope)
    refused = allowed = 0
    for route in routes():
        request = fill(world, route, holder, OWN)
        assert request is not None
        answer = ask(http, holder, request)
        missing = [action for action in needed(route) if not scope_allows((scope,), action)]
        if missing and PERMISSIONS[route.action].scope != "public":
            refused += 1
            assert answer.status_code == 403, f"{route}: {answer.text}"
            assert (answer.json()["code"], answer.json()["permission"]) == ("token_scope", missing[0])
        else:
            allowed += 1
            assert answer.status_code == route.success, f"{route}: {answer.text}"
    assert allowed >= 5
    assert (refused == 0) == (scope == "*")


def test_a_token_is_never_wider_than_the_one_it_was_made_with(http: httpx.Client, almighty: Person) -> None:
    holder = mint(http, almighty, "token.*", "allocation.*")
    for scopes, status in (
        (["allocation.launch"], 201),
        (["allocation.*", "token.read"], 201),
        (["*"], 403),
        (["read"], 403),
        (["allocation.*", "node.read"], 403),
        (["no.such"], 422),
        (["allocation.*\n"], 422),
    ):
        answer = http.post("/api/v1/tokens", json={"name": "narrower", "scopes": scopes}, headers=holder.headers)
        assert answer.status_code == status, (scopes, answer.text)


def test_one_kind_of_secret_does_not_open_the_door_of_another(world: World, http: httpx.Client) -> None:
    joining = world.store.transact(join_token)
    answer = http.get("/api/v1/nodes", headers={"Authorization": f"Bearer {joining}"})
    assert answer.status_code == 401
    admin = world.people["platform_admin"]
    request = fill(world, next(route for route in routes() if route.body == "Join"), admin, OWN)
    assert request is not None
    assert request.json is not None
    assert admin.secret is not None
    request.json["token"] = admin.secret
    request.json["signature"] = world.agent.sign(b"gpuaas-node-join:" + admin.secret.encode())
    request.json["public_key"] = world.agent.public_key
    answer = ask(http, admin, request)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_join_token")


def test_revoking_works_from_the_next_request_on(http: httpx.Client, world: World) -> None:
    editor = world.people["editor"]
    made = http.post("/api/v1/tokens", json={"name": "short"}, headers=editor.headers).json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert http.get("/api/v1/whoami", headers=headers).status_code == 200
    assert http.delete(f"/api/v1/tokens/{made['token']['id']}", headers=editor.headers).status_code == 204
    assert http.get("/api/v1/whoami", headers=headers).status_code == 401


def test_no_secret_lies_in_the_database(http: httpx.Client, world: World) -> None:
    """A dump of every table holds nothing that opens a door."""
    secrets = [person.secret for person in world.people.values() if person.secret]
    joining = http.post("/api/v1/nodes/join-tokens", json={}, headers=world.people["platform_ops"].headers).json()
    secrets.append(joining["secret"])

    def dump(tx: object) -> str:
        names = text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = tx.conn.execute(names).scalars().all()  # type: ignore[attr-defined]
        return "".join(str(tx.conn.execute(text(f'SELECT * FROM "{name}"')).all()) for name in tables)  # type: ignore[attr-defined]

    dumped = world.store.transact(dump)
    assert "editor@example.org" in dumped
    assert not [secret for secret in secrets if secret in dumped]
