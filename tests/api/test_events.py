"""Feeds that are followed: nothing missing, nothing twice, on any server; and the end when access ends."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.server import Replica, serve
from api.world import Person, World, launch, person
from gpuaas.control.app import allocations
from gpuaas.control.http import positions
from gpuaas.control.store import tokens

PROMPT_SECONDS = 2.0


@pytest.fixture(scope="module")
def second(module_database_url: str) -> Iterator[Replica]:
    with serve(module_database_url) as running:
        yield running


class Feed:
    """Frames of one stream, read in a thread until it ends or is closed."""

    def __init__(self, url: str, person: Person, **request: Any) -> None:
        self.frames: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self.opened = threading.Event()
        headers = {**person.headers, **request.pop("headers", {})}
        self._client = httpx.Client(timeout=30)
        self._thread = threading.Thread(target=self._read, args=(url, headers, request), daemon=True)
        self._thread.start()
        assert self.opened.wait(10)

    def _read(self, url: str, headers: dict[str, str], request: dict[str, Any]) -> None:
        frame: dict[str, Any] = {}
        try:
            with self._client.stream("GET", url, headers=headers, **request) as answer:
                self.status = answer.status_code
                for line in answer.iter_lines():
                    self.opened.set()
                    name, _, value = line.partition(": ")
                    if not line and "data" in frame:
                        self.frames.append(frame)
                    if not line:
                        frame = {}
                    elif name:
                        frame[name] = json.loads(value) if name == "data" else value
        except (httpx.TransportError, RuntimeError):  # closed by us
            return
        self.ended.set()

    def wait_for(self, count: int, seconds: float = 5.0) -> list[dict[str, Any]]:
        until = time.monotonic() + seconds
        while len(self.frames) < count and time.monotonic() < until:
            time.sleep(0.005)
        return self.frames

    def close(self) -> None:
        self._client.close()


def queue(world: World, name: str) -> str:
    """Something happens in the project: two events."""
    return world.store.transact(launch, world.people["editor"], world.lab.id, name, offer="b200-1", wait=True)


def fresh(world: World, name: str, role: str = "viewer") -> Person:
    """A member of the project with a token of their own."""
    made = world.store.transact(person, name)
    world.store.transact(world._member, made, world.lab, role)
    return made


def test_a_follower_resumes_anywhere_without_gap_or_duplicate(world: World, replica: Replica, second: Replica) -> None:
    """The connection breaks again and again; every time it goes on at the other server."""
    viewer, seen, position = world.people["viewer"], [], ""
    events = f"/api/v1/events?project={world.lab.id}&limit=500"
    before = httpx.get(replica.url + events, headers=viewer.headers).json()["items"]
    position = str(before[-1]["seq"])
    for number in range(6):
        server = (replica, second)[number % 2]
        url = f"{server.url}/api/v1/events/follow?project={world.lab.id}"
        feed = Feed(url, viewer, headers={"Last-Event-ID": position})
        queue(world, f"live-{number}")
        frames = list(feed.wait_for(2))
        feed.close()
        queue(world, f"missed-{number}")
        seen += frames
        position = frames[-1]["id"]
    url = f"{replica.url}/api/v1/events/follow?project={world.lab.id}"
    last = Feed(url, viewer, headers={"Last-Event-ID": position})
    seen += last.wait_for(2)
    last.close()
    everything = httpx.get(replica.url + events, headers=viewer.headers).json()["items"][len(before) :]
    assert [frame["data"] for frame in seen] == everything
    assert [int(frame["id"]) for frame in seen] == [item["seq"] for item in everything]
    assert [frame["event"] for frame in seen] == [item["type"] for item in everything]


def test_a_change_on_one_server_is_seen_at_once_on_the_other(world: World, second: Replica) -> None:
    feed = Feed(f"{second.url}/api/v1/events/follow?project={world.lab.id}", world.people["viewer"])
    started = time.monotonic()
    id = queue(world, "elsewhere")
    frames = feed.wait_for(2)
    assert time.monotonic() - started < PROMPT_SECONDS
    assert id in {frame["data"]["object_id"] for frame in frames}
    feed.close()


def test_after_says_where_to_begin(world: World, replica: Replica) -> None:
    feed = Feed(f"{replica.url}/api/v1/events/follow?project={world.lab.id}&after=0", world.people["viewer"])
    assert feed.wait_for(1)[0]["data"]["seq"] == 1
    feed.close()


@pytest.mark.parametrize("bad", ["x", "-1", "1.5", "9" * 16, "1\t2"])
def test_a_bad_position_is_refused(world: World, http: httpx.Client, bad: str) -> None:
    headers = {**world.people["viewer"].headers, "Last-Event-ID": bad}
    assert http.get("/api/v1/events/follow", headers=headers).status_code == 422


def test_revoking_the_token_ends_its_feeds(world: World, replica: Replica, second: Replica) -> None:
    """Those of the same user's other token go on."""
    member = fresh(world, "revoked-later")
    other = Person(member.name, member.id, mint(world, member))
    operation = world.own.operations["provisioning"]
    cut = [
        Feed(f"{replica.url}/api/v1/events/follow", member),
        Feed(f"{second.url}/api/v1/events/follow", member),
        Feed(f"{second.url}/api/v1/operations/{operation}/follow", member),
    ]
    kept = Feed(f"{replica.url}/api/v1/events/follow", other)
    mine = httpx.get(f"{replica.url}/api/v1/whoami", headers=member.headers).json()["token_id"]
    assert httpx.delete(f"{replica.url}/api/v1/tokens/{mine}", headers=other.headers).status_code == 204
    for feed in cut:
        assert feed.ended.wait(PROMPT_SECONDS), "still open"
        assert feed.frames[-1]["event"] == "error"
        assert feed.frames[-1]["data"]["code"] == "unauthenticated"
    queue(world, "after-the-revocation")
    assert len(kept.wait_for(2)) >= 2
    assert not kept.ended.is_set()
    kept.close()


def mint(world: World, member: Person) -> str:
    def work(tx: Any) -> str:
        return tokens.insert_token(tx, member.id, "other", ("*",), tx.now + timedelta(hours=1))[1]

    return world.store.transact(work)


def test_leaving_the_project_ends_its_feeds(world: World, replica: Replica, second: Replica) -> None:
    member = fresh(world, "removed-later")
    operation = world.own.operations["provisioning"]
    feeds = [
        Feed(f"{second.url}/api/v1/events/follow?project={world.lab.id}", member),
        Feed(f"{second.url}/api/v1/operations/{operation}/follow", member),
    ]
    seat = f"{replica.url}/api/v1/projects/{world.lab.id}/members/{member.id}"
    assert httpx.delete(seat, headers=world.people["admin"].headers).status_code == 204
    queue(world, "after-they-left")
    for feed in feeds:
        assert feed.ended.wait(PROMPT_SECONDS), "still open"
        assert feed.frames[-1]["event"] == "error"
        assert feed.frames[-1]["data"]["code"] == "not_found"
        assert "after-they-left" not in str(feed.frames)


def test_following_an_operation_ends_with_it(world: World, replica: Replica, second: Replica) -> None:
    editor = world.people["editor"]
    id = world.store.transact(launch, editor, world.lab.id, "followed")
    operation = world.newest_operation(id)
    feeds = [Feed(f"{server.url}/api/v1/operations/{operation}/follow", editor) for server in (replica, second)]
    assert feeds[0].wait_for(1)[0]["data"]["state"] == "running"
    world.settle()
    for feed in feeds:
        assert feed.ended.wait(PROMPT_SECONDS)
        assert feed.frames[-1]["data"]["state"] == "succeeded"
        assert {phase["state"] for phase in feed.frames[-1]["data"]["phases"]} == {"done"}
    late = Feed(f"{replica.url}/api/v1/operations/{operation}/follow", editor)
    assert late.ended.wait(PROMPT_SECONDS)
    assert len(late.frames) == 1


def test_an_absorbed_operation_ends_too(world: World, replica: Replica) -> None:
    editor = world.people["editor"]
    id = queue(world, "absorbed")
    feed = Feed(f"{replica.url}/api/v1/operations/{world.newest_operation(id)}/follow", editor)
    caller = world.store.transact(tokens.caller, editor.secret)
    world.store.transact(allocations.release, caller, id, "absorbed")
    assert feed.ended.wait(PROMPT_SECONDS)
    assert feed.frames[-1]["data"]["state"] == "superseded"


def test_an_orgs_feed_resumes_anywhere_without_gap_or_duplicate(
    world: World, replica: Replica, second: Replica
) -> None:
    """Two projects at once, and a third that is made meanwhile; every connection goes on at the other server."""
    admin, org_id = world.people["tenant_admin"], world.lab.org_id
    projects = [world.lab.id, world.side.id]

    def happen(number: int) -> None:
        queue(world, f"org-{number}")
        world.store.transact(
            launch, world.people["neighbour"], world.side.id, f"org-{number}", offer="b200-1", wait=True
        )

    first = Feed(f"{replica.url}/api/v1/orgs/{org_id}/events/follow", admin)
    begin = {id: newest(replica, admin, id) for id in projects}
    seen, position = [], None
    for number in range(4):
        server = (replica, second)[number % 2]
        happen(2 * number)
        headers = {"Last-Event-ID": position} if position else {}
        feed = first if number == 0 else Feed(f"{server.url}/api/v1/orgs/acme/events/follow", admin, headers=headers)
        frames = list(feed.wait_for(4))
        feed.close()
        happen(2 * number + 1)
        seen += frames
        position = frames[-1]["id"]
    made = httpx.post(f"{replica.url}/api/v1/projects", json={"slug": "third", "name": "T", "org": "acme"},
                      headers=admin.headers).json()  # fmt: skip
    last = Feed(f"{replica.url}/api/v1/orgs/{org_id}/events/follow", admin, headers={"Last-Event-ID": position})
    seen += last.wait_for(5)
    last.close()
    for id in (*projects, made["id"]):
        query = {"project": id, "limit": "500"}
        everything = httpx.get(f"{replica.url}/api/v1/events", params=query, headers=admin.headers).json()["items"]
        new = [item for item in everything if item["seq"] > begin.get(id, 0)]
        assert [frame["data"] for frame in seen if frame["data"]["project_id"] == id] == new
    assert world.globex.id not in {frame["data"]["project_id"] for frame in seen}


def newest(replica: Replica, who: Person, project_id: str) -> int:
    query = {"project": project_id, "limit": "500"}
    found = httpx.get(f"{replica.url}/api/v1/events", params=query, headers=who.headers).json()["items"]
    return int(found[-1]["seq"])


@pytest.mark.parametrize("bad", ["x", "1", "AAAAAAAA", "not/ours", "a" * 8101])
def test_a_bad_position_in_an_org_is_refused(world: World, http: httpx.Client, bad: str) -> None:
    headers = {**world.people["tenant_admin"].headers, "Last-Event-ID": bad}
    assert http.get("/api/v1/orgs/acme/events/follow", headers=headers).status_code == 422


def test_a_position_from_the_future_is_told(world: World, http: httpx.Client) -> None:
    """The database was restored from an older copy: going on in silence would skip what it numbers again."""
    headers = {**world.people["viewer"].headers, "Last-Event-ID": "999999999"}
    answer = http.get(f"/api/v1/events/follow?project={world.lab.id}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "feed_is_shorter")
    ahead = positions.encoded({world.lab.id: 999999999})
    headers = {**world.people["tenant_admin"].headers, "Last-Event-ID": ahead}
    answer = http.get("/api/v1/orgs/acme/events/follow", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "feed_is_shorter")
