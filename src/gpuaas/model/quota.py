"""How much of something a project or an organisation may have at once, or use in a month."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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
    reserved: bool = False  # `used` is the most that it will be, with what is booked ahead

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
        uses = "will use, with what is reserved," if self.reserved else "uses"
        return f"{whose} {uses} {used} of {self.most} {KINDS[self.kind]}{needs}"


@dataclass(frozen=True)
class Span:
    """What somebody has for a time. None: already, or nobody knows until when."""

    machines: int
    gpus: int
    starts_at: datetime | None
    free_at: datetime | None

    def covers(self, moment: datetime) -> bool:
        begun = self.starts_at is None or self.starts_at <= moment
        return begun and (self.free_at is None or moment < self.free_at)


def peak(spans: Sequence[Span], starts_at: datetime, free_at: datetime | None) -> dict[str, int]:
    """The most of each kind that they come to at any moment between the two: it only grows where one begins."""
    begun = [span.starts_at for span in spans if span.starts_at is not None and span.starts_at > starts_at]
    moments = [starts_at, *(moment for moment in begun if free_at is None or moment < free_at)]
    there = [[span for span in spans if span.covers(moment)] for moment in moments]
    return {
        ALLOCATIONS: max(sum(span.machines for span in many) for many in there),
        GPUS: max(sum(span.gpus for span in many) for many in there),
    }
