"""What somebody has open ends with the commit that takes their rights away, on whatever server it is open."""

from collections.abc import Iterator

import httpx
import pytest

from api.server import Replica, serve
from api.test_events import PROMPT_SECONDS, Feed, fresh
from api.test_streams import Node, joined
from api.world import Person, World
from gpuaas.sdk import ApiError
from gpuaas.wire.streams import ACCESS_LOST

API = "/api/v1"


@pytest.fixture(scope="module")
def second(module_database_url: str) -> Iterator[Replica]:
    with serve(module_database_url) as running:
        yield running


@pytest.fixture
def node(replica: Replica, world: World, module_database_url: str) -> Iterator[Node]:
    listening = Node(module_database_url, world.agent.node_id, replica.url)
    yield listening
    listening.close()


def ended(feed: Feed, code: str) -> None:
    assert feed.ended.wait(PROMPT_SECONDS), "still open"
    assert feed.frames[-1]["event"] == "error"
    assert feed.frames[-1]["data"]["code"] == code


def feed_of(server: Replica, world: World, who: Person) -> Feed:
    return Feed(f"{server.url}{API}/events/follow?project={world.lab.id}", who)


def test_a_disabled_user(world: World, replica: Replica, second: Replica, node: Node, http: httpx.Client) -> None:
    member = fresh(world, "disabled-later", "editor")
    feeds = [feed_of(server, world, member) for server in (replica, second)]
    with joined(replica, world, node, member.secret) as (user, far):
        far.send(b"hello")
        assert user.receive() == b"hello"
        email = f"{member.name}@example.org"
        answer = http.post(
            f"{API}/users/{email}/disable", json={"confirm": email}, headers=world.people["platform_admin"].headers
        )
        assert answer.status_code == 200, answer.text
        with pytest.raises(ApiError) as said:
            user.receive()
        assert said.value.status == ACCESS_LOST - 4000
    for feed in feeds:
        ended(feed, "unauthenticated")
    assert http.get(f"{API}/whoami", headers=member.headers).status_code == 401


def test_somebody_who_leaves_the_organisation(
    world: World, replica: Replica, second: Replica, node: Node, http: httpx.Client
) -> None:
    member = fresh(world, "leaves-later", "editor")
    feeds = [feed_of(server, world, member) for server in (replica, second)]
    with joined(replica, world, node, member.secret) as (user, far):
        far.send(b"hello")
        assert user.receive() == b"hello"
        members = f"{API}/orgs/{world.lab.org_id}/members"
        answer = http.delete(f"{members}/{member.name}@example.org", headers=world.people["tenant_admin"].headers)
        assert answer.status_code == 204, answer.text
        with pytest.raises(ApiError):
            user.receive()
    for feed in feeds:
        ended(feed, "not_found")
    assert http.get(f"{API}/whoami", headers=member.headers).json()["projects"] == [], "the login is still theirs"


def test_a_deleted_service_account(world: World, second: Replica, http: httpx.Client) -> None:
    admin = world.people["admin"].headers
    accounts = f"{API}/projects/{world.lab.id}/service-accounts"
    assert http.post(accounts, json={"name": "watcher", "role": "viewer"}, headers=admin).status_code == 201
    wanted = {"name": "t", "scopes": ["read"]}
    made = http.post(f"{accounts}/watcher/tokens", json=wanted, headers=admin).json()
    feed = feed_of(second, world, Person("watcher", "", made["secret"]))
    feed.wait_for(0)
    assert http.delete(f"{accounts}/watcher", headers=admin).json() == {"machines": []}
    ended(feed, "unauthenticated")


@pytest.mark.parametrize("by", ["operator", "tenant"])
def test_a_break_glass(world: World, second: Replica, http: httpx.Client, by: str) -> None:
    operator, tenant = world.people["platform_ops"], world.people["tenant_admin"]
    asked = {"org": world.lab.org_id, "reason": "to see that it ends"}
    entry = http.post(f"{API}/break-glass", json=asked, headers=operator.headers).json()
    feed = feed_of(second, world, operator)
    feed.wait_for(0)
    if by == "operator":
        answer = http.post(f"{API}/break-glass/{entry['id']}/end", headers=operator.headers)
    else:
        answer = http.post(f"{API}/orgs/{world.lab.org_id}/break-glass/{entry['id']}/end", headers=tenant.headers)
    assert answer.status_code == 204
    ended(feed, "not_found")
