"""Runs the recipe's `verify:` commands in a finished image, read-only and activated, on nothing but the base.

In the image as machines mount it, where this one can: what mkfs got wrong does not pass.
"""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import activate, untrusted
from gpuaas.runtimes.build.sandbox import Sandbox
from gpuaas.runtimes.recipe import Check, Recipe

_AT_ONCE = 2
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def in_image(
    recipe: Recipe,
    image: Path,
    entries: tuple[int, int],
    base: Path,
    work: Path,
    log: IO[bytes] | None,
    say: Callable[[str, int | None], None],
) -> None:
    """`entries`: how many bytes and how many files there are in it."""
    seen = work / "seen"
    seen.mkdir()
    sandbox = Sandbox(base, seen, recipe.root, activate.variables(recipe, _PATH), image)
    if not _mounts(sandbox, log):
        untrusted.unpack(image, seen, *entries)
        sandbox = msgspec.structs.replace(sandbox, image=None)
    run(recipe.verify, sandbox, log, say)


def _mounts(sandbox: Sandbox, log: IO[bytes] | None) -> bool:
    """Only root mounts, and not on every machine."""
    try:
        sandbox.run(["/bin/sh", "-c", ":"], log, what="mount the image")
    except Problem:
        return False
    return True


def run(
    checks: Sequence[Check], sandbox: Sandbox, log: IO[bytes] | None, say: Callable[[str, int | None], None]
) -> None:
    """Two at a time: they mostly import, on one processor. Of those that fail, the first in the recipe is told."""
    given_up = threading.Event()
    with ThreadPoolExecutor(_AT_ONCE) as several:
        running = [several.submit(_one, check, sandbox, log, given_up) for check in checks]
        try:
            for number, (check, each) in enumerate(zip(checks, running, strict=True), start=1):
                say(_first(check), number * 100 // len(checks))
                each.result()
        except BaseException:
            given_up.set()
            several.shutdown(cancel_futures=True)
            raise
    say(f"{len(checks)} checks", 100)


def _one(check: Check, sandbox: Sandbox, log: IO[bytes] | None, given_up: threading.Event) -> None:
    first = _first(check)
    try:
        printed = sandbox.shell(check.run, log, what=first, given_up=given_up)
    except Problem as problem:
        said = f"A check of the runtime failed: {first}"
        raise Problem("verify_failed", 422, said, problem.message, detail=problem.detail) from problem
    if check.expect and not re.search(check.expect, printed, re.MULTILINE):
        said = f"A check of the runtime printed something else than {check.expect!r}: {first}"
        raise Problem("verify_failed", 422, said, detail="\n".join(printed.strip().splitlines()[-5:]))


def _first(check: Check) -> str:
    return check.run.strip().splitlines()[0][:80]
