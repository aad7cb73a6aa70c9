"""What came from elsewhere, looked at without trusting it: its recipe by the rules of the format, its image in user
space, in a sandbox, and watched: one that grows beyond what it promised is stopped."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import document, process, schema, tree
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.tree import refused

_SLACK_BYTES = 64 * 2**20
_SLACK_ENTRIES = 1000
_TIMEOUT_SECONDS = 1800.0
_LOOK_SECONDS = 0.25


def findings(recipe: Recipe) -> list[str]:
    """Empty: the recipe is one that a file could have said."""
    try:
        again = schema.loads(document.dumps(recipe), "recipe")
    except Problem as problem:
        return [problem.message]
    except (ValueError, TypeError, IndexError) as error:
        return [str(error)]
    if again != msgspec.structs.replace(recipe, file="recipe"):
        return ["it says something that no recipe can say"]
    return []


def unpack(image: Path, target: Path, promised_bytes: int, promised_entries: int) -> None:
    """Modes stay as they are in the image, so that they can be judged; without capabilities no device can be made."""
    target.chmod(0o700)  # nobody but us passes: there may be setuid files for a moment
    view = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    view += [part for name in ("bin", "sbin", "lib", "lib64") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    view += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(image), "/image", "--bind", str(target), "/out"]
    check = ["fsck.erofs", "--extract=/out", "--overwrite", "--preserve-perms", "--no-preserve-owner", "/image"]
    command = ["bwrap", *view, "--", *check]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=process.environment(),
        cwd="/",
        start_new_session=True,
    ) as running:
        try:
            _watch(running, target, promised_bytes + _SLACK_BYTES, promised_entries + _SLACK_ENTRIES)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
        assert running.stderr is not None
        said = running.stderr.read(64 * 1024).decode(errors="replace").strip().splitlines()
    if running.returncode != 0:
        why = said[-1] if said else "fsck.erofs refuses it"
        raise Problem(
            "refused_content", 422, "image.erofs is not a sound image.", "Nothing of it was kept.", detail=why
        )


def _watch(running: "subprocess.Popen[bytes]", target: Path, most_bytes: int, most_entries: int) -> None:
    until = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(_LOOK_SECONDS)
        seen = [about.st_blocks * 512 for _, about in _walk(target)]
        if sum(seen) > most_bytes or len(seen) > most_entries or time.monotonic() > until:
            raise refused("image.erofs", "it holds more than files.json lists")
        if running.returncode is not None:
            return


def _walk(target: Path) -> list[tuple[str, os.stat_result]]:
    while True:
        try:
            return list(tree.walk(target))
        except FileNotFoundError:
            continue  # it changes while we look
