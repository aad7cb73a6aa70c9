"""Images that nobody needs any more are removed from the server, and never one that somebody needs."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from control import catalog
from control.cluster import Cluster
from gpuaas.control.app import runtime_bundles, runtime_images, runtimes
from gpuaas.control.store.images import Images
from gpuaas.kit.errors import Problem
from gpuaas.model.runtime import RuntimeBundle

HOUR = 3600


@pytest.fixture
def images(tmp_path: Path) -> Images:
    made = Images(tmp_path / "images")
    made.directory.mkdir()
    return made


def stored(images: Images, bundle: RuntimeBundle, hours_ago: float = 2) -> RuntimeBundle:
    """Its image, as it was sent then."""
    images.path(bundle.digest).write_bytes(catalog.content(bundle.slug, bundle.version))
    aged(images.path(bundle.digest), hours_ago)
    return bundle


def aged(file: Path, hours_ago: float) -> None:
    at = time.time() - hours_ago * HOUR
    os.utime(file, (at, at))


def published(
    cluster: Cluster, images: Images, state: str, version: str = "1.0", hours_ago: float = 2
) -> RuntimeBundle:
    """In this state for as long as its image is here."""
    bundle = stored(images, catalog.publish(cluster.store, "torch", version, state=state), hours_ago)
    column = {"draft": "created_at"}.get(state, f"{state}_at")
    ago = f"UPDATE managed_runtime_bundles SET {column} = now() - make_interval(hours => :hours) WHERE id = :id"
    cluster.sql(ago, hours=int(hours_ago), id=bundle.id)
    return bundle


def collect(cluster: Cluster, images: Images, older_than_seconds: int = HOUR) -> list[str]:
    """As the route does it. What was removed."""
    aside = runtime_images.Aside()
    found = cluster.store.transact(runtime_images.collect, cluster.caller, images, older_than_seconds, aside)
    aside.drop()
    assert sorted(each.digest for each in found if each.kind == "image") == aside.digests
    return [each.digest for each in found]


def would(cluster: Cluster, images: Images, older_than_seconds: int = HOUR) -> list[str]:
    found = cluster.store.look(lambda tx: runtime_images.unused(tx, cluster.caller, images, older_than_seconds))
    return [each.digest for each in found]


@pytest.mark.parametrize(
    ("state", "hours_ago", "goes"),
    [
        ("published", 1000, False),
        ("deprecated", 2, True),
        ("deprecated", 0.5, False),
        ("draft", 2, True),
        ("draft", 0.5, False),
    ],
)
def test_by_state_and_age(cluster: Cluster, images: Images, state: str, hours_ago: float, goes: bool) -> None:
    bundle = published(cluster, images, state, hours_ago=hours_ago)
    assert would(cluster, images) == ([bundle.digest] if goes else [])
    assert images.complete(bundle.digest), "looking removes nothing"
    assert collect(cluster, images) == ([bundle.digest] if goes else [])
    assert images.complete(bundle.digest) is not goes
    assert collect(cluster, images) == [], "once"


def test_an_old_image_of_a_version_that_was_deprecated_just_now_stays(cluster: Cluster, images: Images) -> None:
    bundle = published(cluster, images, "deprecated", hours_ago=0)
    aged(images.path(bundle.digest), 1000)
    assert collect(cluster, images) == []


def test_what_no_version_names_and_halves_of_images(cluster: Cluster, images: Images) -> None:
    orphan, half, young = "0" * 64, "1" * 64, "2" * 64
    images.path(orphan).write_bytes(b"x" * 1000)
    aged(images.path(orphan), 2)
    for digest, hours_ago in ((half, 2), (young, 0)):
        file = images.directory / f".{digest}.partial"
        file.write_bytes(b"x" * 10)
        aged(file, hours_ago)
    (images.directory / "notes.txt").write_text("somebody's")
    aged(images.directory / "notes.txt", 100)
    assert collect(cluster, images) == [orphan, half]
    assert sorted(os.listdir(images.directory)) == [f".{young}.partial", "notes.txt"]
    (entry,) = cluster.sql("SELECT action, data FROM audit ORDER BY at DESC, seq DESC LIMIT 1")
    assert entry.action == "runtime_image.collect"
    assert (entry.data["images"], entry.data["uploads"], entry.data["bytes"]) == ([orphan], 1, 1010)


def test_what_a_machine_has_or_can_go_back_to_stays(cluster: Cluster, images: Images) -> None:
    """A deprecated version lies beside the current one; when the machine is released nobody needs it."""
    agent = cluster.agent()
    machine = cluster.launch()
    agent.settle()
    for version in ("1.0", "2.0"):
        stored(images, catalog.publish(cluster.store, "torch", version))
        cluster.store.transact(runtimes.apply, cluster.caller, machine, None, "torch", version, None)
        agent.settle()
    for version in ("1.0", "2.0"):
        cluster.store.transact(runtime_bundles.deprecate, cluster.caller, f"torch:{version}")
    cluster.sql("UPDATE managed_runtime_bundles SET deprecated_at = now() - interval '9 hours'")
    assert collect(cluster, images) == []
    cluster.store.transact(runtimes.rollback, cluster.caller, machine, "torch", None)
    cluster.release(machine)
    assert len(collect(cluster, images)) == 2


def test_one_digest_of_two_versions(cluster: Cluster, images: Images) -> None:
    """The same bytes under two names: one of them is enough to keep them."""
    image = b"the same"
    kept = catalog.publish(cluster.store, "torch", "1.0", image=image)
    catalog.publish(cluster.store, "torch", "2.0", image=image, state="deprecated")
    cluster.sql("UPDATE managed_runtime_bundles SET deprecated_at = now() - interval '9 hours' WHERE version = '2.0'")
    stored(images, kept)
    assert collect(cluster, images) == []


def test_somebody_publishes_it_in_this_moment(cluster: Cluster, images: Images) -> None:
    """The publisher has looked and found the image; it is put aside; they commit. It comes back."""
    bundle = published(cluster, images, "draft")
    removed: list[str] = []
    collecting = threading.Thread(target=lambda: removed.extend(collect(cluster, images)))

    def is_here(digest: str) -> bool:
        found = images.complete(digest)
        collecting.start()
        while images.complete(digest):  # until the other one is past the point of no return, and waits for us
            time.sleep(0.001)
        return found

    done = cluster.store.transact(runtime_bundles.publish, cluster.caller, bundle.id, is_here)
    collecting.join(60)
    assert (done.state, removed) == ("published", [])
    assert images.complete(bundle.digest)


def test_somebody_publishes_it_a_moment_later(cluster: Cluster, images: Images) -> None:
    """It is aside already: they are told to send it, and nothing is published without its image."""
    bundle = published(cluster, images, "draft")
    images.put_aside(bundle.digest)
    with pytest.raises(Problem) as refused:
        cluster.store.transact(runtime_bundles.publish, cluster.caller, bundle.id, images.complete)
    assert refused.value.code == "no_image"
    images.bring_back([bundle.digest])
    assert (
        cluster.store.transact(runtime_bundles.publish, cluster.caller, bundle.id, images.complete).state == "published"
    )


def test_what_a_killed_one_left_aside_is_judged_again(cluster: Cluster, images: Images) -> None:
    needed = published(cluster, images, "published", "1.0")
    unneeded = published(cluster, images, "deprecated", "2.0")
    for bundle in (needed, unneeded):
        images.put_aside(bundle.digest)
    assert collect(cluster, images) == [unneeded.digest]
    assert images.complete(needed.digest)
    assert [each.digest for each in images.stored()] == [needed.digest]


def test_only_operators(cluster: Cluster, images: Images) -> None:
    nobody = replace(cluster.caller, platform_role=None)
    for verb, more in ((runtime_images.unused, ()), (runtime_images.collect, (set(),))):
        with pytest.raises(Problem) as refused:
            cluster.store.transact(verb, nobody, images, HOUR, *more)
        assert refused.value.status == 403
