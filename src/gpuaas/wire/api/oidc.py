"""Single sign-on: what the server offers, what a CLI brings back, and what an org makes of it."""

from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import END, TEXT, In, Out, ProjectRole, Ref

Domain = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=200,
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?[.])+[A-Za-z0-9-]*[A-Za-z]" + END,
        examples=["example.org"],
    ),
]
GroupName = Annotated[str, Meta(min_length=1, max_length=200, pattern=TEXT, examples=["ml-engineers"])]


class OidcOffer(Out, frozen=True):
    """Whether one can log in here by single sign-on, and where that begins."""

    enabled: bool
    issuer: str
    login_url: str


class OidcCode(In, frozen=True):
    """The code that the browser brought, and the verifier whose challenge the login began with."""

    code: Annotated[str, Meta(min_length=20, max_length=100, pattern=r"^gpc_[A-Za-z0-9_-]+" + END)]
    verifier: Annotated[str, Meta(min_length=43, max_length=128, pattern=r"^[A-Za-z0-9._~-]+" + END)]


class OidcDomains(In, frozen=True):
    domains: Annotated[list[Domain], Meta(max_length=50)]


class OidcGroup(In, frozen=True):
    group: GroupName
    project: Ref
    role: ProjectRole


class OidcGroups(In, frozen=True):
    groups: Annotated[list[OidcGroup], Meta(max_length=200)]


class OidcGroupView(Out, frozen=True):
    group: str
    project_id: str
    role: str


class OidcSettingsView(Out, frozen=True):
    org_id: str
    domains: list[str]
    groups: list[OidcGroupView]
