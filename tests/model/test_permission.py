"""The permission table: what each role adds, and how a token's scopes cut it down."""

from itertools import pairwise

import pytest

from gpuaas.model.permission import (
    ADMIN,
    EDITOR,
    ORG_ROLES,
    PERMISSIONS,
    PLATFORM_ADMIN,
    PLATFORM_BUILDER,
    PLATFORM_OPS,
    PLATFORM_ROLES,
    PROJECT_ROLES,
    TENANT_ADMIN,
    TENANT_MEMBER,
    VIEWER,
    is_scope,
    scope_allows,
)

ROLES = {"project": set(PROJECT_ROLES), "org": set(ORG_ROLES), "platform": {*PLATFORM_ROLES, PLATFORM_BUILDER}}


def of(role: str) -> set[str]:
    return {action for action, permission in PERMISSIONS.items() if role in permission.roles}


def test_every_entry_makes_sense() -> None:
    for action, permission in PERMISSIONS.items():
        assert permission.scope in ("project", "org", "platform", "self", "public"), action
        assert permission.roles <= ROLES.get(permission.scope, set()), action
        assert bool(permission.roles) == (permission.scope in ROLES), action


def test_a_higher_role_can_all_that_a_lower_one_can() -> None:
    for ladder in ((VIEWER, EDITOR, ADMIN), (TENANT_MEMBER, TENANT_ADMIN), (PLATFORM_OPS, PLATFORM_ADMIN)):
        for lower, higher in pairwise(ladder):
            assert of(lower) < of(higher), f"{lower} < {higher}"


def test_a_viewer_only_looks() -> None:
    assert {action.partition(".")[2] for action in of(VIEWER)} == {"read", "plan"}


def test_platform_roles_give_no_right_on_tenants_objects() -> None:
    tenants = {action for action, permission in PERMISSIONS.items() if permission.scope in ("project", "org")}
    assert not tenants & (of(PLATFORM_ADMIN) | of(PLATFORM_OPS))


def test_a_builder_publishes_and_does_nothing_else() -> None:
    assert of(PLATFORM_BUILDER) == {"runtime_bundle.write"}


def test_what_needs_no_token_is_this_and_nothing_else() -> None:
    public = {action for action, permission in PERMISSIONS.items() if permission.scope == "public"}
    assert public == {
        "login",
        "invitation.signup",
        "oidc.login",
        "oidc.token",
        "node.join",
        "node.link",
        "node.stream",
        "runtime_image.fetch",
        "health",
    }


@pytest.mark.parametrize(
    ("scopes", "covered", "not_covered"),
    [
        (("*",), ["allocation.launch", "platform.audit", "login"], []),
        (("read",), ["allocation.read", "allocation.plan", "user.read"], ["allocation.launch", "token.write"]),
        (("allocation.*",), ["allocation.read", "allocation.release"], ["operation.read", "key.write"]),
        (("allocation.launch",), ["allocation.launch"], ["allocation.read", "allocation.launch2", "allocation"]),
        (("node.*", "key.read"), ["node.write", "key.read"], ["key.write", "nodes.write"]),
        ((), [], ["allocation.read", "self.read"]),
        (("", ".*", "al*", "allocation", "ALLOCATION.READ"), [], ["allocation.read"]),
    ],
)  # fmt: skip
def test_scopes(scopes: tuple[str, ...], covered: list[str], not_covered: list[str]) -> None:
    assert [action for action in covered if not scope_allows(scopes, action)] == []
    assert [action for action in not_covered if scope_allows(scopes, action)] == []


def test_what_a_scope_may_be() -> None:
    assert all(is_scope(action) for action in PERMISSIONS)
    assert all(is_scope(text) for text in ("*", "read", "allocation.*", "token.*"))
    assert not any(
        is_scope(text) for text in ("", ".*", "**", "alloc.*", "allocation.", "read.*", "write", "al.*", " *")
    )
