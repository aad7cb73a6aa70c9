"""Path and query parameters. Litestar ignores msgspec's `Meta` on these, so their bounds are said in its own words."""

from typing import Annotated

from litestar.params import Parameter

from gpuaas.wire.api import END

_REF = r"^[A-Za-z0-9][A-Za-z0-9@._+-]*" + END
_CURSOR = r"^[A-Za-z0-9_=-]+" + END

Name = Annotated[str, Parameter(min_length=1, max_length=254, pattern=_REF)]
OptionalName = Annotated[str | None, Parameter(min_length=1, max_length=254, pattern=_REF, required=False)]
ObjectId = Annotated[str | None, Parameter(query="object", max_length=64, pattern=r"^[a-z0-9-]+" + END, required=False)]
IncludeReleased = Annotated[bool, Parameter(query="all")]
IncludeEnded = Annotated[bool, Parameter(query="all")]
Limit = Annotated[int, Parameter(ge=1, le=500)]
Cursor = Annotated[str | None, Parameter(max_length=200, pattern=_CURSOR, required=False)]
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})" + END
From = Annotated[
    str | None,
    Parameter(query="from", min_length=20, max_length=40, pattern=_TIME, description="As RFC 3339.", required=False),
]
To = Annotated[
    str | None,
    Parameter(query="to", min_length=20, max_length=40, pattern=_TIME, description="As RFC 3339.", required=False),
]
By = Annotated[str, Parameter(max_length=10, pattern=r"^(allocation|user|offer|project)" + END)]
Month = Annotated[
    str, Parameter(min_length=7, max_length=7, pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])" + END, description="In UTC.")
]
Since = Annotated[
    str | None,
    Parameter(min_length=20, max_length=40, pattern=_TIME, description="A time as RFC 3339 writes it.", required=False),
]
DeliveryState = Annotated[
    str | None, Parameter(query="state", max_length=16, pattern=r"^(pending|delivered|dead)" + END, required=False)
]
Step = Annotated[int | None, Parameter(ge=1, le=86400, description="Seconds of one point.", required=False)]
Sequence = Annotated[int | None, Parameter(ge=0, le=2**53, required=False)]
OrgEventId = Annotated[
    str | None, Parameter(header="Last-Event-ID", max_length=8100, pattern=r"^[A-Za-z0-9_-]+" + END, required=False)
]
LastEventId = Annotated[str | None, Parameter(header="Last-Event-ID", pattern=r"^[0-9]{1,15}" + END, required=False)]
