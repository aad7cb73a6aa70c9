"""How much of something a project or an organisation may have at once, or use in a month."""

from dataclasses import dataclass

GPUS, ALLOCATIONS, GPU_HOURS, VOLUMES = "gpus", "allocations", "gpu_hours", "volumes"
KINDS = {
    GPUS: "GPUs at a time",
    ALLOCATIONS: "machines at a time",
    GPU_HOURS: "GPU hours a month",
    VOLUMES: "volumes",
}


@dataclass(frozen=True)
class Quota:
    owner_id: str  # of a project or an org
    kind: str
    most: int


@dataclass(frozen=True)
class Standing:
    """One quota and what counts against it. `most` None: there is no limit."""

    scope: str  # project or org
    owner_id: str
    kind: str
    most: int | None
    used: float

    def exceeded_by(self, more: int) -> bool:
        """GPU hours are used later, not asked for: whoever has some left may launch."""
        if self.most is None:
            return False
        return self.used >= self.most if self.kind == GPU_HOURS else self.used + more > self.most

    def hopeless(self, more: int) -> bool:
        """No waiting helps: it is more than may ever be had."""
        return self.most is not None and self.kind != GPU_HOURS and more > self.most

    def said(self, more: int) -> str:
        whose = "the project" if self.scope == "project" else "the organisation"
        used = f"{self.used:.1f}".removesuffix(".0")
        needs = "" if self.kind == GPU_HOURS else f", this needs {more}"
        return f"{whose} uses {used} of {self.most} {KINDS[self.kind]}{needs}"
