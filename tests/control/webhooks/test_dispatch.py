"""From a commit to the target: order, retries, slow neighbours, dead senders, rotation, filters, replays."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from control.cluster import Cluster
from control.webhooks.target import Target, answer, target
from gpuaas.control.app import identity as people
from gpuaas.control.app import webhooks as verbs
from gpuaas.control.app.webhooks import Place
from gpuaas.control.store import deliveries, identity, webhooks
from gpuaas.control.store.deliveries import LEASE, Claim
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.control.store.wakes import Wakes
from gpuaas.control.webhooks import dispatch
from gpuaas.control.webhooks.address import networks
from gpuaas.control.webhooks.dispatch import Dispatch
from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.errors import Problem
from gpuaas.kit.seal import Seal
from gpuaas.model.webhook import MOST_ATTEMPTS, Outcome, Webhook
from gpuaas.sdk import NotGenuine, verify_webhook

HERE = networks(["127.0.0.0/8"])


class Sending:
    """A store whose clock stands still until it is moved, and replicas that send."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.cluster = cluster
        self.url = url
        self.clock = VirtualClock(datetime.now(UTC))
        self.store = Store(connect(url, pool_size=8), self.clock)
        self.place = Place(cluster.project.org_id, cluster.project.id)

    def hook(self, there: Target, *types: str, place: Place | None = None, name: str = "w") -> tuple[Webhook, str]:
        wanted = [*(types or ("member.*",))]
        return self.store.transact(verbs.create_webhook, place or self.place, name, there.url, wanted)

    def happen(self, count: int = 1, project: Any = None) -> None:
        def work(tx: Tx) -> None:
            home = project or self.cluster.project
            for number in range(count):
                about = {"org_id": home.org_id, "project_id": home.id, "kind": "user", "id": f"us-{number}"}
                tx.emit("member.set", **about, role="viewer")

        self.store.transact(work)

    def log(self, hook: Webhook) -> list[Any]:
        return self.store.transact(deliveries.deliveries, hook.id, None, None, 500)

    def settled(self, hook: Webhook, *states: str) -> list[Any]:
        """The log, once it says this: an answer is written down a moment after the target gave it."""
        until = time.monotonic() + 20
        while True:
            found = self.log(hook)
            if [item.state for item in found] == list(states):
                return found
            assert time.monotonic() < until, found
            time.sleep(0.02)

    def spread(self) -> None:
        while behind := self.store.transact(webhooks.behind, 100):
            for item in behind:
                self.store.transact(webhooks.spread, *item)

    @contextmanager
    def replica(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        wakes = Wakes(self.url)

        async def work() -> None:
            await asyncio.gather(wakes.listen(), Dispatch(self.store, wakes, HERE).run())

        task = loop.create_task(work())
        thread = threading.Thread(target=self._run, args=(loop, task), daemon=True)
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join(20)
            assert not thread.is_alive()

    def _run(self, loop: Any, task: Any) -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()


@pytest.fixture
def sending(cluster: Cluster, database_url: str) -> Iterator[Sending]:
    made = Sending(cluster, database_url)
    yield made
    made.store.engine.dispose()


def numbers(there: Target) -> list[int]:
    return [msgspec.json.decode(body)["seq"] for _, body in there.requests]


def test_events_arrive_in_order_signed_and_once(sending: Sending) -> None:
    with target() as there, sending.replica(), sending.replica():
        hook, secret = sending.hook(there)
        for _ in range(10):
            sending.happen(3)
        received = there.wait_for(30)
        now = sending.clock.now().timestamp()
        seen = [verify_webhook(secret, headers, body, now=now) for headers, body in received]
        with pytest.raises(NotGenuine):
            verify_webhook("whs_other", *received[0], now=now)
        with pytest.raises(NotGenuine):
            verify_webhook(secret, received[0][0], received[0][1].replace(b"viewer", b"editor"), now=now)
        with pytest.raises(NotGenuine):
            verify_webhook(secret, *received[0], now=now + 301)
        sending.settled(hook, *["delivered"] * 30)
    assert [event.seq for event in seen] == list(range(seen[0].seq, seen[0].seq + 30))
    assert len({event.id for event in seen}) == 30


def test_a_failed_attempt_is_made_again_and_those_behind_it_go_on(sending: Sending) -> None:
    with target() as there, sending.replica():
        hook, _ = sending.hook(there)
        there.script = [answer(500)]
        sending.happen(2)
        there.wait_for(2)
        failed = sending.settled(hook, "delivered", "pending")[1]
        assert (failed.attempts, failed.status) == (1, 500)
        assert "it answered 500" in failed.error
        sending.clock.advance(7)
        (first, _), _, (again, _) = there.wait_for(3)
        sending.settled(hook, "delivered", "delivered")
    assert (first["Gpuaas-Attempt"], again["Gpuaas-Attempt"]) == ("1", "2")
    assert first["Gpuaas-Event-Id"] == again["Gpuaas-Event-Id"]
    assert first["Gpuaas-Delivery"] == again["Gpuaas-Delivery"]


def test_one_that_hangs_delays_nobody_else(sending: Sending) -> None:
    with target() as slow, target() as quick, sending.replica():
        slow.usual = slow.hang
        sending.hook(slow, name="slow")
        sending.hook(quick, name="quick")
        sending.happen(50)
        quick.wait_for(50, seconds=8)
        assert len(slow.requests) == 1, "one at a time for each webhook"


def test_after_the_last_attempt_it_is_dead_and_can_be_sent_again(sending: Sending) -> None:
    with target() as there:
        hook, _ = sending.hook(there)
        sending.happen()
        sending.spread()
        waited = timedelta()
        for number in range(1, MOST_ATTEMPTS + 1):
            (claim,) = sending.store.transact(deliveries.claim, 10, 10)
            attempt = sending.store.transact(deliveries.begin, claim)
            assert attempt is not None
            assert attempt.number == number
            state = sending.store.transact(deliveries.record, attempt, Outcome(500, "no", 1))
            sending.store.transact(deliveries.let_go, claim)
            (item,) = sending.log(hook)
            assert item.state == state == ("pending" if number < MOST_ATTEMPTS else "dead")
            assert sending.store.transact(deliveries.claim, 10, 10) == [], "not before its time"
            if item.next_at is not None:
                waited += item.next_at - sending.clock.now()
                sending.clock.advance((item.next_at - sending.clock.now()).total_seconds() + 1)
        assert timedelta(hours=5) < waited < timedelta(hours=10)
        sending.clock.advance(86400)
        assert sending.store.transact(deliveries.claim, 10, 10) == []
        assert sending.store.transact(verbs.replay_delivery, sending.place, "w", item.id) == 1
        with sending.replica():
            there.wait_for(1)
            sending.settled(hook, "delivered", "dead")


def test_a_sender_that_dies_is_replaced_and_cannot_write_any_more(sending: Sending) -> None:
    with target() as there:
        hook, _ = sending.hook(there)
        sending.happen()
        sending.spread()
        (dead,) = sending.store.transact(deliveries.claim, 10, 10)
        attempt = sending.store.transact(deliveries.begin, dead)
        assert attempt is not None
        sending.clock.advance(LEASE.total_seconds() - 1)
        assert sending.store.transact(deliveries.claim, 10, 10) == []
        sending.clock.advance(2)
        (heir,) = sending.store.transact(deliveries.claim, 10, 10)
        second = sending.store.transact(deliveries.begin, heir)
        assert second is not None
        assert (second.delivery_id, second.number) == (attempt.delivery_id, 2)
        assert sending.store.transact(deliveries.begin, dead) is None
        assert sending.store.transact(deliveries.record, attempt, Outcome(500, "late", 1)) is None
        sending.store.transact(deliveries.let_go, dead)
        assert sending.store.transact(deliveries.claim, 10, 10) == [], "the heir's claim stands"
        assert sending.store.transact(deliveries.record, second, Outcome(200, "", 1)) == "delivered"
        assert sending.log(hook)[0].attempts == 2


def test_a_tenant_whose_targets_all_hang_leaves_room(sending: Sending) -> None:
    with target() as there:
        for number in range(dispatch.PER_ORG + 4):
            sending.hook(there, name=f"w{number}")
        sending.happen()
        sending.spread()
        claims: list[Claim] = sending.store.transact(deliveries.claim, 64, dispatch.PER_ORG)
        assert len(claims) == dispatch.PER_ORG
        assert sending.store.transact(deliveries.claim, 64, dispatch.PER_ORG, [sending.place.org_id]) == []


def test_a_rotated_secret_overlaps_with_the_old_one(sending: Sending) -> None:
    with target() as there, sending.replica():
        _, old = sending.hook(there)
        rotated, new = sending.store.transact(verbs.rotate_secret, sending.place, "w", 3600)
        assert new != old
        assert rotated.previous_until == sending.clock.now() + timedelta(hours=1)
        sending.happen()
        during = there.wait_for(1)[0]
        now = sending.clock.now().timestamp()
        for secret in (old, new):
            assert verify_webhook(secret, *during, now=now).type == "member.set"
        sending.clock.advance(3601)
        sending.happen()
        after = there.wait_for(2)[1]
        now = sending.clock.now().timestamp()
        assert verify_webhook(new, *after, now=now).type == "member.set"
        with pytest.raises(NotGenuine):
            verify_webhook(old, *after, now=now)


def test_secrets_are_sealed_and_of_no_use_without_the_key(sending: Sending) -> None:
    with target() as there:
        sending.hook(there, name="older")  # than the key
        sending.store.seal = Seal(bytes(range(32)))
        hook, secret = sending.hook(there, "member.*")
        with sending.store.engine.connect() as conn:
            kept = dict(conn.exec_driver_sql("SELECT name, secret FROM webhooks").fetchall())
        assert kept["older"].startswith("whs_")
        assert kept["w"].startswith("sealed:")
        assert secret not in kept["w"]
        assert sending.store.transact(webhooks.unsealed) == 1
        sending.store.transact(verbs.rotate_secret, sending.place, "older", 0)
        assert sending.store.transact(webhooks.unsealed) == 0
        with sending.replica():
            sending.happen()
            came = there.wait_for(2)
            now = sending.clock.now().timestamp()
            genuine = [one for one in came if _is_signed_with(secret, one, now)]
            assert len(genuine) == 1
            sending.settled(hook, "delivered")
        sending.clock.advance(600)  # whoever had taken it up would have let it go
        sending.store.seal = Seal(bytes(32))  # a server that was started with another key
        with sending.replica():
            sending.happen()
            until = time.monotonic() + 20
            while not any("cannot be read" in item.error for item in sending.log(hook)):
                assert time.monotonic() < until, sending.log(hook)
                time.sleep(0.05)
        assert len(there.requests) == 2, "nothing was sent that nobody could check"


def _is_signed_with(secret: str, request: Any, now: float) -> bool:
    try:
        return bool(verify_webhook(secret, *request, now=now).type)
    except NotGenuine:
        return False


def test_filters(sending: Sending) -> None:
    with target() as there, sending.replica():
        hook, _ = sending.hook(there, "project.*", "webhook.removed", name="picky")
        sending.hook(there, name="other", place=Place(sending.place.org_id, None))
        sending.store.transact(people.set_network, sending.cluster.caller, sending.place.project_id, True)
        types = [msgspec.json.decode(body)["type"] for _, body in there.wait_for(1)]
        assert types == ["project.network"]
        assert [item.type for item in sending.log(hook)] == ["project.network"]
    with pytest.raises(Problem) as refused:
        sending.store.transact(verbs.create_webhook, sending.place, "x", "https://x.example", ["machine.*"])
    assert refused.value.code == "unknown_event_type"


@pytest.mark.parametrize(
    "url",
    ["https://", "https://user:pw@x.example", "https://x.example:99999/", "https://x.example/#a", "https://[::1/"],
)
def test_addresses_that_cannot_be_sent_to_are_refused_at_once(sending: Sending, url: str) -> None:
    with pytest.raises(Problem) as refused:
        sending.store.transact(verbs.create_webhook, sending.place, "x", url, ["*"])
    assert refused.value.code == "bad_webhook_url"


def test_an_orgs_webhook_has_every_project_also_later_ones(sending: Sending) -> None:
    with target() as there, sending.replica():
        org = Place(sending.place.org_id, None)
        sending.hook(there, "*", place=org)
        before = sending.store.transact(identity.org, sending.place.org_id)
        assert before is not None
        later = sending.store.transact(people.add_project, before, "later", "Later")
        sending.happen(2)
        sending.happen(2, later)
        seen = [msgspec.json.decode(body) for _, body in there.wait_for(5)]
        assert [e["seq"] for e in seen if e["project_id"] == later.id] == [1, 2, 3], "from its beginning"
        first, second = (e["seq"] for e in seen if e["project_id"] == sending.place.project_id)
        assert second == first + 1
        assert sending.store.transact(verbs.replay_range, org, "w", "later", 2, 3) == 2
        assert numbers(there)[5:] == [2, 3] or there.wait_for(7)
        with pytest.raises(Problem):
            sending.store.transact(verbs.replay_range, org, "w", None, 1, 2)


def test_one_that_was_stopped_gets_what_it_missed(sending: Sending) -> None:
    with target() as there, sending.replica():
        sending.hook(there)
        sending.happen()
        there.wait_for(1)
        sending.store.transact(verbs.change_webhook, sending.place, "w", None, None, False)
        sending.happen(3)
        threading.Event().wait(0.5)
        assert len(there.requests) == 1
        sending.store.transact(verbs.change_webhook, sending.place, "w", None, None, True)
        there.wait_for(4)
        assert numbers(there) == sorted(set(numbers(there)))


def test_a_feed_that_is_too_fast_waits_in_the_feed(sending: Sending) -> None:
    with target() as there:
        sending.hook(there)
        for _ in range(6):
            sending.happen(250)
        sending.spread()
        pending = sending.store.transact(deliveries.pending)
        assert webhooks.MOST_PENDING <= pending < webhooks.MOST_PENDING + webhooks.AT_ONCE
        assert sending.store.transact(webhooks.lag) == 1501 - pending - 1


def test_old_deliveries_are_forgotten(sending: Sending) -> None:
    with target() as there, sending.replica():
        hook, _ = sending.hook(there)
        sending.happen(2)
        there.wait_for(2)
        sending.settled(hook, "delivered", "delivered")
    sending.clock.advance(deliveries.KEPT.total_seconds() + 60)
    assert sending.store.transact(deliveries.forget_old, 1) == 1
    assert sending.store.transact(deliveries.forget_old, 10) == 1
    assert sending.log(hook) == []
