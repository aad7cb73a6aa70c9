"""How long machines may stay: extensions, and what the leads of a project have decided."""

from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.allocations import AllocationView, OperationView
from gpuaas.wire.api.base import IdleSeconds, In, Out, Seconds


class Extend(In, frozen=True):
    """More than it has left, or from now on if its time is over."""

    seconds: Seconds


class Extended(Out, frozen=True):
    """`operation` where the machine had been stopped: it is started again."""

    allocation: AllocationView
    operation: OperationView | None


class LeasePolicyRequest(In, frozen=True):
    """The whole policy. What is left out is not limited."""

    idle_seconds: IdleSeconds | None = None
    idle_gpu_percent: Annotated[int, Meta(ge=1, le=100, description="A GPU this busy is not idle.")] = 5
    max_duration_seconds: Seconds | None = None


class LeasePolicyView(Out, frozen=True):
    project_id: str
    idle_seconds: int | None
    idle_gpu_percent: int
    max_duration_seconds: int | None
