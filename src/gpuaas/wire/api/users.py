"""Users: made, listed, disabled."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import END, TEXT, Email, In, Out, Password, Title


class NewUser(In, frozen=True):
    email: Email
    name: Title
    password: Password | None = None
    platform_role: Annotated[str, Meta(pattern=r"^(platform_admin|platform_ops|platform_builder)" + END)] | None = None


class UserView(Out, frozen=True):
    id: str
    email: str
    name: str
    platform_role: str | None
    created_at: datetime
    disabled_at: datetime | None
    kind: str = "person"  # or service: a service account


class DisableUser(In, frozen=True):
    confirm: Email  # repeats the address: logins, tokens and SSH sessions end at once
    reason: Annotated[str, Meta(min_length=1, max_length=500, pattern=TEXT)] = "not said"


class UserPage(Out, frozen=True):
    items: list[UserView]
    next_cursor: str | None
