"""Runs the recipe's `verify:` commands in a finished runtime, read-only and activated, on nothing but the base."""

import re
from collections.abc import Callable, Sequence
from typing import IO

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.build.sandbox import Sandbox
from gpuaas.runtimes.recipe import Check


def run(
    checks: Sequence[Check], sandbox: Sandbox, log: IO[bytes] | None, say: Callable[[str, int | None], None]
) -> None:
    for number, check in enumerate(checks, start=1):
        first = check.run.strip().splitlines()[0][:80]
        say(first, number * 100 // len(checks))
        try:
            printed = sandbox.shell(check.run, log, what=first)
        except Problem as problem:
            said = f"A check of the runtime failed: {first}"
            raise Problem("verify_failed", 422, said, problem.message, detail=problem.detail) from problem
        if check.expect and not re.search(check.expect, printed, re.MULTILINE):
            said = f"A check of the runtime printed something else than {check.expect!r}: {first}"
            raise Problem("verify_failed", 422, said, detail="\n".join(printed.strip().splitlines()[-5:]))
    say(f"{len(checks)} checks", 100)
