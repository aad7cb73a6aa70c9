"""A planted bug: one edit of one file, and a seed that notices."""

from dataclasses import dataclass

CONTROL, NODE, MODEL = "gpuaas/control/", "gpuaas/node/", "gpuaas/model/"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    seed: int | None
    search: range = range(60)  # where another seed is looked for when this one has lost its bite
