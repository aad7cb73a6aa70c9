"""What we build, used on real machines over real ssh. Whoever needs an image first builds it (`runtimes.builds`)."""

import hashlib
import json
import random
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from websockets.sync.client import unix_connect

from gpuaas.wire.node import AllocationBody
from node.samples import OTHER_ID
from node.test_host_contract import make, remove, wanted
from root.conftest import needs
from root.erofs import FileImage
from root.linux import Keyed, Node, World
from runtimes.builds import built, needs_tools

pytestmark = [pytest.mark.slow, needs_tools, needs("runc", "catatonit", "nft", "ssh", "ssh-keygen")]
PLACE = "/opt/gpuaas/runtimes"
SECONDS = 120  # for what takes two on a machine that has nothing else to do


@pytest.fixture
def world(node: Node, work: Path) -> World:
    return World(node, Keyed(work))


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> FileImage:
    """Built before the machine is looked at: a build is not what the test leaves behind."""
    return FileImage(built(request.param))


@pytest.fixture(scope="session")
def other_image() -> FileImage:
    return FileImage(built("node:18"))


WORKS = [
    ("python:3.11+ml", "python -c 'import numpy, sklearn; print(numpy.arange(4).sum())'", "6"),
    ("java:17", "java -version 2>&1 | grep -c 'openjdk version .17'", "1"),
    ("node:18", "node -p process.version | cut -d. -f1", "v18"),
    ("pytorch:2.13.0-cpu", "python -c 'import torch; print(int((torch.ones(3, 3) @ torch.ones(3, 3)).sum()))'", "27"),
]


@pytest.mark.acceptance("D02", "D05")
@pytest.mark.parametrize(
    ("image", "name", "command", "said"),
    [(each[0], *each) for each in WORKS],
    indirect=["image"],
    ids=[each[0] for each in WORKS],
)
def test_what_we_build_works_in_a_machine_and_cannot_be_changed(
    world: World, image: FileImage, name: str, command: str, said: str
) -> None:
    bundle, _, version = name.partition(":")
    image.add(world.node.host)
    condition = world.launch(memory_mib=1024, runtimes=[image.spec(bundle, version)])
    assert [(each.version, each.state, each.current) for each in condition.runtimes] == [(version, "ready", True)]
    assert world.ssh(f'gpuaas-runtime use {bundle} -- sh -c "{command}"') == said
    assert world.ssh("gpuaas-runtime list") == f"* {name}"
    tried = json.loads(world.ssh(f"sudo python3 -I -c {quoted(WRITES)} {PLACE}"))
    assert set(tried["answers"]) == {"EROFS"}, tried
    assert set(tried["kinds"]) == KINDS
    assert tried["files"] > 100
    assert tried["mounts"] == {PLACE: True, f"{PLACE}/{bundle}/{version}": True}
    with (world.node.config.paths.runtimes / f"{image.digest}.erofs").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == image.digest, "it is what it was"
    assert world.node.host.image_check(image.digest, lambda: True)  # and on the disk, too


# T47: every call that changes something by its name; nothing can be written by a handle that cannot be had.
KINDS = {
    *("open", "mkdir", "mknod", "symlink", "link", "unlink", "rmdir", "rename", "truncate", "chmod", "lchown", "utime"),
    *("setxattr", "removexattr"),
}
# As root, on everything that is there: what each attempt says, and which mounts are read-only.
WRITES = """
import collections, errno, json, os, sys
place = sys.argv[1]
answers, kinds, files = collections.Counter(), set(), 0
def attempt(call, *arguments):
    kinds.add(call.__name__)
    try:
        call(*arguments)
        answers["done: %s %s" % (call.__name__, arguments)] += 1
    except OSError as error:
        said = errno.errorcode[error.errno]
        answers[said if said == "EROFS" else "%s: %s %s" % (said, call.__name__, arguments)] += 1
for where, directories, names in os.walk(place):
    attempt(os.mkdir, where + "/.new")
    attempt(os.mknod, where + "/.new")
    attempt(os.open, where + "/.new", os.O_WRONLY | os.O_CREAT)
    attempt(os.symlink, "x", where + "/.new")
    attempt(os.chmod, where, 0o777)
    attempt(os.utime, where)
    attempt(os.lchown, where, 1000, 1000)
    for name in directories:
        path = os.path.join(where, name)
        attempt(os.unlink if os.path.islink(path) else os.rmdir, path)
    for name in names:
        path, files = os.path.join(where, name), files + 1
        attempt(os.unlink, path)
        attempt(os.rename, path, path + ".new")
        attempt(os.link, path, path + ".new")
        attempt(os.lchown, path, 1000, 1000)
        if not os.path.islink(path):
            for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_TRUNC):
                attempt(os.open, path, flags)
            attempt(os.truncate, path, 0)
            attempt(os.chmod, path, 0o777)
            attempt(os.utime, path)
            attempt(os.setxattr, path, "user.x", b"1")
            attempt(os.removexattr, path, "user.x")
lines = [line.split() for line in open("/proc/self/mountinfo")]
mounts = {line[4]: "ro" in line[5].split(",") for line in lines if (line[4] + "/").startswith(place + "/")}
said = {"answers": dict(answers.most_common(20)), "kinds": sorted(kinds), "files": files, "mounts": mounts}
print(json.dumps(said))
"""


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.parametrize("image", ["jupyter:4"], indirect=True)
def test_jupyterlab_serves_and_runs_a_cell_and_the_neighbour_has_none_of_it(
    world: World, image: FileImage, other_image: FileImage, work: Path
) -> None:
    image.add(world.node.host)
    other_image.add(world.node.host)
    world.launch(memory_mib=1024, runtimes=[image.spec("jupyter", "4")])
    token = uuid.uuid4().hex
    start = "gpuaas-runtime use jupyter -- jupyter lab --no-browser --ip 127.0.0.1 --port 8888"
    with forwarded(world, work / "jupyter.sock", 8888, f"{start} --IdentityProvider.token={token}") as lab:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(lab)), base_url="http://localhost") as http:
            until(lambda: answers(http, "/api", 200))
            assert answers(http, "/api/kernels", 403), "only with the token"
            http.headers["Authorization"] = f"token {token}"
            assert "JupyterLab" in http.get("/lab").text
            kernel = http.post("/api/kernels", json={"name": "python3"}, timeout=SECONDS).json()["id"]
        one, other = random.randrange(10**6), random.randrange(10**6)
        cell = f"import socket, sys\nprint(sys.prefix, socket.gethostname(), {one} * {other})"
        printed = executed(lab, f"ws://localhost/api/kernels/{kernel}/channels?token={token}", cell)
    assert printed.split() == [f"{PLACE}/jupyter/4", world.body.name, str(one * other)]

    host = world.node.host
    neighbour: AllocationBody = replace(wanted(host, 1), keys=[world.person.spec], memory_mib=256)
    neighbour = replace(neighbour, runtimes=[other_image.spec("node", "18")])
    make(host, OTHER_ID, neighbour)
    assert [each.state for each in host.runtimes_ensure(OTHER_ID, neighbour)] == ["ready"]
    look = f"gpuaas-runtime list; ls {PLACE}; grep -c jupyter /proc/self/mountinfo /etc/gpuaas/runtime.env; true"
    said = subprocess.run(
        world.person.ssh(neighbour.ssh_port, look), check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert said == "* node:18\nnode\n/proc/self/mountinfo:0\n/etc/gpuaas/runtime.env:0\n"
    assert world.ssh("gpuaas-runtime list") == "* jupyter:4"
    remove(host, OTHER_ID, neighbour)


@contextmanager
def forwarded(world: World, socket: Path, port: int, command: str) -> Iterator[Path]:
    """A command that runs in the machine, and a port of the machine that ssh brings here."""
    line = world.person.ssh(world.body.ssh_port, command)
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"{socket}:127.0.0.1:{port}"]
    said = socket.with_suffix(".log")
    with said.open("wb") as out:
        running = subprocess.Popen([line[0], *forward, *line[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        until(socket.exists)
        yield socket
    finally:
        running.terminate()
        running.wait()
        print(said.read_text()[-4000:])  # pytest shows it when the test fails


def answers(http: httpx.Client, path: str, status: int) -> bool:
    try:
        return http.get(path).status_code == status
    except httpx.HTTPError:
        return False  # nobody listens yet


def executed(socket: Path, address: str, cell: str) -> str:
    """What a cell prints, by the protocol that a notebook in a browser speaks with its kernel."""
    id = uuid.uuid4().hex
    header = {"msg_id": id, "msg_type": "execute_request", "session": id, "username": "test", "version": "5.3"}
    content = {"code": cell, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    request = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    printed = ""
    with unix_connect(str(socket), address, open_timeout=SECONDS) as connected:
        connected.send(json.dumps(request))
        while True:
            message = json.loads(connected.recv(timeout=SECONDS))
            if message["parent_header"].get("msg_id") != id:
                continue
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            elif message["msg_type"] == "error":
                pytest.fail(str(message["content"]))
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return printed  # all that it printed comes before this


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
