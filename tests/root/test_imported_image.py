"""A machine whose file system begins with an image that somebody else made, imported as an operator does it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuaas.node.host.images.store import Images
from root.conftest import needs
from root.linux import Keyed, Node, World

pytestmark = [pytest.mark.slow, needs("tar", "runc", "catatonit", "nft", "ssh", "ssh-keygen")]
LEFT_OUT = ("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./var/lib/apt", "./var/cache", "./home")


def archive(work: Path, tree: Path) -> Path:
    """As another distributor's: without our login, with a release of its own."""
    (work / "more/etc").mkdir(parents=True)
    (work / "more/etc/issue").write_text("Corporate Linux 7\n")
    users = (line for line in (tree / "etc/passwd").read_text().splitlines(True) if not line.startswith("gpu:"))
    (work / "more/etc/passwd").write_text("".join(users))
    left_out = [f"--exclude={path}" for path in LEFT_OUT]
    first = ["tar", "-C", str(tree), "-cf", str(work / "corp.tar"), *left_out, "."]
    more = ["tar", "-C", str(work / "more"), "-rf", str(work / "corp.tar"), "--owner=0", "--group=0", "./etc"]
    for command in (first, more):
        subprocess.run(command, check=True, timeout=300)
    return work / "corp.tar"


def image(work: Path, *words: str) -> Any:
    command = [sys.executable, "-P", "-m", "gpuaas.cli.main", "agent", "image", *words, "--json"]
    options = ["--state-dir", str(work / "state"), "--image-store", str(work / "images")]
    return json.loads(subprocess.run([*command, *options], check=True, capture_output=True, timeout=300).stdout)


def test_a_machine_begins_with_an_imported_image(work: Path, base_image: Images) -> None:
    made = archive(work, base_image.tree(base_image.current()))
    version = image(work, "import", str(made), "--as", "corp")["version"]
    assert image(work, "ls")["items"] == [version]
    world = World(Node(work, work / "images", base_image=version), Keyed(work))
    try:
        assert world.launch().state == "ready"
        assert world.ssh("cat /etc/issue; id -un; sudo id -u") == "Corporate Linux 7\ngpu\n0"
        world.ssh("sudo sh -c 'echo mine > /etc/issue'")
        assert world.restart().state == "ready"
        assert world.ssh("cat /etc/issue") == "mine"
        assert world.release().state == "gone"
    finally:
        world.node.host.shut_down()
    assert (work / "images" / version / "rootfs/etc/issue").read_text() == "Corporate Linux 7\n"
