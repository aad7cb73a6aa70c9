"""Quotas: how much a project or an organisation may have."""

from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import In, Out


class NewQuota(In, frozen=True):
    most: Annotated[int, Meta(ge=0, le=2**40, examples=[16])]


class QuotaView(Out, frozen=True):
    scope: str  # project or org
    owner_id: str
    quota: str  # gpus, allocations, gpu_hours, volumes
    unit: str
    most: int | None  # None: no limit
    used: float


class QuotaPage(Out, frozen=True):
    items: list[QuotaView]
    next_cursor: str | None
