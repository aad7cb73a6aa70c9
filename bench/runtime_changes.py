"""How long a change of a running machine's runtime takes, beside a mount and a rename made by hand in the same run.

    floor    mount(2) of an image, a link renamed and fsynced (`floors/switch.py`); for a rollback the rename alone too
    step     the node's step that shows the machine its runtimes, on a real machine
    agent    all that the agent does: the spec's arrival, its journal, every step, the report
    API      from the request, through the SDK, until a client that waits reads that the operation has succeeded

    apply    a version that this node has, and has never mounted      rollback   to the version that lies beside it
    switch   to another such version, beside the first                remove     all of them

Images are real and tiny (EROFS, a few files each): what is measured does not depend on what is in them. Promised: the
agent <= 10x of mount and rename, API <= 120 ms. Needs root and the test image; takes about a minute.

    flock /tmp/gpuaas-root-tests.lock .venv/bin/python bench/runtime_changes.py [ROUNDS]

With another number of ROUNDS nothing is recorded.
"""

import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import msgspec
from floors.installation import IMAGES, Up, release_all, up
from floors.node import Node
from floors.results import record
from floors.switch import Floor

from gpuaas.runtimes import tools
from gpuaas.runtimes.build.image import write_image
from gpuaas.runtimes.manifest import Layer, Manifest
from gpuaas.runtimes.recipe import Check, Recipe, Requirements
from gpuaas.sdk import Client
from gpuaas.wire.api import Changed, NewOffer
from gpuaas.wire.node import RuntimeSpec

PORT = 7387
ROUNDS = 30
WARM = 2
PROMISED_RATIO, PROMISED_MS = 10, 120
OFFER = NewOffer("bench", "Small", "H100", 1, 1, 64)
BUNDLE = "tool"
CHANGES = ("apply", "switch", "rollback", "remove")

Times = dict[str, list[float]]


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    if os.geteuid() != 0 or shutil.which("mkfs.erofs") is None:
        print("skipped: needs root and mkfs.erofs")
        return 0
    directory = Path(tempfile.mkdtemp(prefix="gpuaas-bench-", dir="/var/tmp"))
    directory.chmod(0o711)
    try:
        # Two for each round: one that has been mounted on the node before would be shown faster.
        files = [_image(directory, f"{number}.0") for number in range(2 * (WARM + rounds))]
        with up(directory, PORT, "1xH100") as running:
            api = _by_api(running, files)
        floor, step, agent = _on_node(directory, files)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = "\n".join(_lines(rounds, floor, step, agent, api))
    print(text)
    if rounds == ROUNDS:
        record("runtime changes", text)
    return 0


def _on_node(directory: Path, files: list[Path]) -> tuple[Times, Times, Times]:
    """Turn and turn about, so that a busy minute of this machine is everybody's."""
    floor: Times = {"apply": [], "rollback": []}
    step: Times = {change: [] for change in CHANGES}
    agent: Times = {change: [] for change in CHANGES}
    bare = Floor(directory / "floor", files[0])
    node = Node(directory / "node", IMAGES)
    try:
        for times, way in ((step, node.step), (agent, node.change)):
            node.host.images_tidy(lambda digest: False)
            specs = [_spec(node, file) for file in files]
            for before, after in zip(specs[::2], specs[1::2], strict=True):
                floor["apply"].append(bare.apply())
                floor["rollback"].append(bare.switch())
                now, kept = msgspec.structs.replace(before, current=True), msgspec.structs.replace(after, current=True)
                times["apply"].append(way([now]))
                times["switch"].append(way([before, kept]))
                times["rollback"].append(way([now, after]))
                times["remove"].append(way([]))
    finally:
        node.close()
        bare.close()
    return _warm(floor), _warm(step), _warm(agent)


def _by_api(running: Up, files: list[Path]) -> Times:
    client = running.client()
    client.offers.create(OFFER)
    launched = client.allocations.launch("bench", offer=OFFER.slug)
    client.wait(launched.operations[0], timeout_seconds=60.0)
    for file in files:
        _publish(client, file)
    times: Times = {change: [] for change in CHANGES}

    def wait(changed: Changed) -> None:
        client.wait(changed.operation, timeout_seconds=60.0)

    try:
        for file in files:  # fetched once; from here on the node has them
            wait(client.runtimes.apply("bench", BUNDLE, version=file.stem))
        wait(client.runtimes.remove("bench", BUNDLE))
        for before, after in zip(files[::2], files[1::2], strict=True):
            began = [time.perf_counter()]
            wait(client.runtimes.apply("bench", BUNDLE, version=before.stem))
            began.append(time.perf_counter())
            wait(client.runtimes.apply("bench", BUNDLE, version=after.stem))
            began.append(time.perf_counter())
            wait(client.runtimes.rollback("bench", BUNDLE))
            began.append(time.perf_counter())
            wait(client.runtimes.remove("bench", BUNDLE))
            began.append(time.perf_counter())
            for change, (start, end) in zip(CHANGES, pairwise(began), strict=True):
                times[change].append(end - start)
    finally:
        release_all(client)
    return _warm(times)


def _lines(rounds: int, floor: Times, step: Times, agent: Times, api: Times) -> list[str]:
    bare = _ms(floor["apply"])[0]
    lines = [
        f"Milliseconds, median and slowest of {rounds} rounds, with tiny EROFS images that the node has; load average "
        f"at the end {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.",
        f"By hand: mount, rename and fsync {_shown(floor['apply'])}; rename and fsync alone "
        f"{_shown(floor['rollback'])}.",
        f"Promised: all that the agent does <= {PROMISED_RATIO}x of mount, rename and fsync; by API <= "
        f"{PROMISED_MS} ms.",
        "",
        "| change | step | to mount and rename | all that the agent does | to mount and rename | by API |",
        "|---|---|---|---|---|---|",
    ]
    for change in CHANGES:
        ratios = [f"{_ms(times[change])[0] / bare:.1f}x" for times in (step, agent)]
        shown = [_shown(times[change]) for times in (step, agent, api)]
        lines.append(f"| {change} | {shown[0]} | {ratios[0]} | {shown[1]} | {ratios[1]} | {shown[2]} |")
    return lines


def _spec(node: Node, file: Path) -> RuntimeSpec:
    """One that the node has, beside the current one."""
    data, digest = file.read_bytes(), _digest(file)
    node.host.image_append(digest, node.host.image_begin(digest, len(data)), data)
    node.host.image_end(digest)
    return RuntimeSpec(BUNDLE, file.stem, digest, len(data), current=False, applied_at=time.time())


def _publish(client: Client, file: Path) -> None:
    recipe = Recipe(
        BUNDLE,
        file.stem,
        product="Tool",
        description="A few files",
        support="supported",
        requirements=Requirements(architectures=(tools.architecture(),)),
        verify=(Check("true"),),
    )
    layer, nothing = Layer(_digest(file), file.stat().st_size), "0" * 64
    about = (nothing, nothing, nothing, 100, 3, "bench")
    made = Manifest(BUNDLE, file.stem, tools.architecture(), (layer,), recipe, *about)
    described = client.runtimes.describe(msgspec.to_builtins(made))
    client.runtimes.send_image(described, file)
    client.runtimes.publish(described.id)


def _image(directory: Path, version: str) -> Path:
    tree, file = directory / f"tree-{version}", directory / f"{version}.erofs"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/tool").write_text(f"#!/bin/sh\necho {version}\n")
    (tree / "bin/tool").chmod(0o755)
    (tree / "activate.sh").write_text(f"export TOOL_VERSION={version}\n")
    with open(os.devnull, "wb") as log:
        write_image(tree, file, version, log)
    return file


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _warm(times: Times) -> Times:
    return {change: taken[WARM:] for change, taken in times.items()}


def _ms(times: list[float]) -> tuple[float, float]:
    return statistics.median(times) * 1000, max(times) * 1000


def _shown(times: list[float]) -> str:
    return "{:.1f}, {:.1f}".format(*_ms(times))


if __name__ == "__main__":
    sys.exit(main())
