"""What the messages are made of: bounded texts and numbers, the two bases, the problem."""

from typing import Annotated, Any

from msgspec import Meta, Struct

END = r"$(?!\n)"
# Lone surrogates need no mention: the JSON decoder refuses them.
TEXT = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+" + END
MAX_BODY_BYTES = 256 * 1024

Slug = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        # Not shaped like an id: a name must never be mistaken for somebody else's object.
        pattern=r"^(?![a-z]{2}-[a-z2-7]{16}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?" + END,
        description="Lower-case letters, digits and dashes.",
        examples=["train-1"],
    ),
]
Ref = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=254,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]*" + END,
        description="An id, or a name that is unique where you look.",
        examples=["h100-1"],
    ),
]
Title = Annotated[str, Meta(min_length=1, max_length=120, pattern=TEXT, examples=["Research"])]
Email = Annotated[
    str,
    Meta(max_length=254, pattern=r"^[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+" + END, examples=["ada@example.org"]),
]
Password = Annotated[str, Meta(min_length=12, max_length=200, pattern=TEXT, examples=["correct horse battery"])]
KeyLine = Annotated[str, Meta(min_length=16, max_length=16384, pattern=TEXT, examples=["ssh-ed25519 AAAAC3... me"])]
Seconds = Annotated[int, Meta(ge=1, le=366 * 24 * 3600)]
IdleSeconds = Annotated[int, Meta(ge=600, le=23 * 3600, description="What machines use is kept for a day.")]
Scope = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[a-z._*]+" + END, examples=["*", "read", "allocation.*"])
]
ProjectRole = Annotated[str, Meta(pattern=r"^(viewer|editor|admin)" + END, examples=["editor"])]


RuntimeName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9.+:@_-]*" + END,
        description="A bundle, or one version of it in any spelling.",
        examples=["pytorch", "python:3.11+ml", "python@3.11.x"],
    ),
]
RuntimeVersion = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9.+_-]*" + END, examples=["2.13.0-cpu"])
]


class In(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything that comes in."""


class Out(Struct, frozen=True):
    """Base of everything that goes out."""


class Problem(Out, frozen=True):
    """RFC 9457 problem details. `code` is stable; `detail` and `hint` are for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str
    correlation_id: str
    errors: list[dict[str, Any]] = []
