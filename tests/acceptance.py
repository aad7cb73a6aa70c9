"""What a user relies on, by id: `@pytest.mark.acceptance("D01")` marks each test that shows a case.

`pytest` has no option to choose by a mark's argument; `grep -rn 'acceptance("D01")' tests` finds them.
"""

CASES = {
    "RT03": "a runtime that is removed is gone from the list",
    "RT04": "`info` of an unknown runtime is not 0",
    "RT05": "a version, `@latest`, one that is there already, an invalid one, its own path, and never a fallback",
    "RT06": "the host is unchanged after a build",
    "D01": "`python-3.11-nonexistent` is refused, never another runtime",
    "D02": "`python:3.11+ml`, `java:17`, `node:18` resolve, each to its own runtime; an unknown tag is refused",
    "D03": "`runtime test` really executes the interpreter and imports the packages",
    "D04": "`2GB` is 2 GB; `2GBB`, `two` and `50%%` are usage errors, and nothing is asked of a server",
    "D05": "a write to every mount of a runtime fails with EROFS, also for root; what is not read-only does not start",
    "D06": "what `selective` names is there, and nothing else can be named",
    "D07": "the host's files are the same before and after a build, with hooks",
    "D08": "packages that were there before a build are there after it",
    "D18": "the same recipe twice gives the same digest, and the lock is kept",
    "D19": "no substitution: node 18 is 18.x, or it fails",
}

# What is left of these for jobs, which are not there yet.
LATER = {
    "D04": "the same options of `gpuaas run`",
    "D05": "root in a job, and a job that refuses to start",
    "D06": "a job that sees only the named files",
}
