"""What was used and what it costs: usage, price books, statements, budgets. Money is in integer millionths."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from gpuaas.wire.api.base import END, TEXT, In, Out, Title

Micros = Annotated[int, Meta(ge=0, le=10**15, description="Millionths of the operator's currency.", examples=[2500000])]
PricedName = Annotated[str, Meta(min_length=1, max_length=64, pattern=TEXT)]
Moment = Annotated[
    str,
    Meta(
        min_length=20,
        max_length=40,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
        + END,
        description="A time as RFC 3339 writes it.",
        examples=["2030-01-31T12:00:00Z"],
    ),
]


class UsageTotal(Out, frozen=True):
    """`key` is an id (or an offer's slug), `name` what people call it."""

    key: str
    name: str
    seconds: float
    gpu_seconds: float
    amount_micros: int


class UsageView(Out, frozen=True):
    starts_at: datetime
    ends_at: datetime
    by: str
    total: UsageTotal
    items: list[UsageTotal]  # they add up to the total, exactly


class UsageLine(Out, frozen=True):
    """One interval, or its correction, at one price. Rounded once, to the nearest millionth."""

    usage_id: str
    correction_id: str | None
    project_id: str
    resource_id: str
    name: str
    user_id: str | None
    component: str
    offer: str
    gpu_model: str
    gpu_count: int  # as it was sold, and is priced
    started_at: datetime
    ended_at: datetime
    seconds: float
    gpu_seconds: float
    micros_per_hour: int
    price_book: int | None  # None: the offer's own price
    amount_micros: int
    reason: str
    gpus_held: int = 0  # what `gpu_seconds` counts: all of the node for who has one alone


class UsageLinePage(Out, frozen=True):
    items: list[UsageLine]
    next_cursor: str | None


class NewCorrection(In, frozen=True):
    """Time that is not charged after all: all of an interval, or a part."""

    usage: Annotated[
        str, Meta(min_length=4, max_length=64, pattern=r"^[a-z0-9-]+" + END, examples=["ug-h4xk2q7wnd3mzy5c"])
    ]
    reason: Title
    starts_at: Moment | None = None
    ends_at: Moment | None = None


class CorrectionView(Out, frozen=True):
    id: str
    usage_id: str
    project_id: str
    started_at: datetime
    ended_at: datetime
    reason: str
    created_by: str
    created_at: datetime


class NewPriceBook(In, frozen=True):
    """Per hour: of an offer; or of its parts (a GPU of a model, a CPU, a GiB of memory) where no offer is named."""

    offers: Annotated[dict[PricedName, Micros], Meta(max_length=1000)] = field(default_factory=dict)
    gpus: Annotated[dict[PricedName, Micros], Meta(max_length=1000)] = field(default_factory=dict)
    cpu: Micros = 0
    memory_gib: Micros = 0
    valid_from: Moment | None = None  # now; never in the past
    note: Title | None = None


class PriceBookView(Out, frozen=True):
    version: int
    valid_from: datetime
    valid: bool  # it is the one that counts now
    offers: dict[str, int]
    gpus: dict[str, int]
    cpu: int
    memory_gib: int
    note: str
    created_by: str
    created_at: datetime


class PriceBookPage(Out, frozen=True):
    items: list[PriceBookView]
    next_cursor: str | None


class StatementView(Out, frozen=True):
    """`closed_at` None: the month is not over, or not settled yet. `intact`: derived again, it has the same hash."""

    project_id: str
    month: str
    starts_at: datetime
    ends_at: datetime
    lines: int
    amount_micros: int
    hash: str
    closed_at: datetime | None
    intact: bool | None


class StatementPage(Out, frozen=True):
    items: list[StatementView]
    next_cursor: str | None


class OrgStatementView(Out, frozen=True):
    org_id: str
    month: str
    amount_micros: int
    projects: list[StatementView]


class NewBudget(In, frozen=True):
    amount_micros: Annotated[int, Meta(ge=1, le=10**15, description="For a calendar month.", examples=[500000000])]


class BudgetView(Out, frozen=True):
    org_id: str
    project_id: str | None
    month: str
    amount_micros: int | None
    spent_micros: int
    alerts: list[int]  # percentages that were told this month
