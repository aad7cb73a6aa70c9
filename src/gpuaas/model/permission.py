"""Who may do what: one table, role x action. A route whose action is not in it does not start.

Scopes: `project` roles come from memberships (a tenant_admin is admin of every project of the org), `org` roles from
org membership, `platform` roles from the user, `self` needs only a valid token, `public` needs nothing.
Platform roles give no right on tenants' objects; an open break-glass does, on a few.
"""

from dataclasses import dataclass

VIEWER, EDITOR, ADMIN = "viewer", "editor", "admin"
PROJECT_ROLES = (VIEWER, EDITOR, ADMIN)
TENANT_MEMBER, TENANT_ADMIN = "tenant_member", "tenant_admin"
ORG_ROLES = (TENANT_MEMBER, TENANT_ADMIN)
PLATFORM_ADMIN, PLATFORM_OPS = "platform_admin", "platform_ops"
PLATFORM_ROLES = (PLATFORM_OPS, PLATFORM_ADMIN)  # operators
PLATFORM_BUILDER = "platform_builder"  # publishes runtimes, and nothing else: for whoever, or whatever, builds them


@dataclass(frozen=True)
class Permission:
    scope: str
    roles: frozenset[str] = frozenset()


def _project(*roles: str) -> Permission:
    return Permission("project", frozenset(roles))


def _org(*roles: str) -> Permission:
    return Permission("org", frozenset(roles))


def _platform(*roles: str) -> Permission:
    return Permission("platform", frozenset(roles))


ANY_MEMBER = _project(VIEWER, EDITOR, ADMIN)
WORKERS = _project(EDITOR, ADMIN)
LEADS = _project(ADMIN)
OPERATORS = _platform(PLATFORM_ADMIN, PLATFORM_OPS)
BUILDERS = _platform(PLATFORM_ADMIN, PLATFORM_OPS, PLATFORM_BUILDER)
SIGNED_IN = Permission("self")
PUBLIC = Permission("public")

PERMISSIONS: dict[str, Permission] = {
    "allocation.read": ANY_MEMBER,
    "allocation.plan": ANY_MEMBER,
    "allocation.launch": WORKERS,
    "allocation.connect": WORKERS,
    "allocation.restart": WORKERS,
    "allocation.access": WORKERS,
    "allocation.runtime": WORKERS,
    "allocation.release": WORKERS,
    "allocation.extend": WORKERS,
    "reservation.read": ANY_MEMBER,
    "reservation.write": WORKERS,
    "lease.read": ANY_MEMBER,
    "lease.write": LEADS,
    "operation.read": ANY_MEMBER,
    "quota.read": ANY_MEMBER,
    "queue.read": ANY_MEMBER,
    "event.read": ANY_MEMBER,
    "project.read": ANY_MEMBER,
    "project.network": LEADS,
    "project_runtime.read": ANY_MEMBER,
    "project_runtime.write": WORKERS,
    "usage.read": ANY_MEMBER,
    "statement.read": ANY_MEMBER,
    "budget.read": ANY_MEMBER,
    "budget.write": LEADS,
    "webhook.read": LEADS,
    "webhook.write": LEADS,
    "member.read": ANY_MEMBER,
    "member.write": LEADS,
    "service_account.read": ANY_MEMBER,
    "service_account.write": LEADS,
    "project.create": _org(TENANT_ADMIN),
    "org.read": _org(TENANT_MEMBER, TENANT_ADMIN),
    "org.break_glass": _org(TENANT_ADMIN),
    "org.invite": _org(TENANT_ADMIN),
    "org_member.read": _org(TENANT_ADMIN),
    "org_member.write": _org(TENANT_ADMIN),
    "org.groups": _org(TENANT_ADMIN),
    "audit.read": _org(TENANT_ADMIN),
    "quota.write": _org(TENANT_ADMIN),
    "org_quota.read": _org(TENANT_MEMBER, TENANT_ADMIN),
    "org_usage.read": _org(TENANT_ADMIN),
    "org_budget.write": _org(TENANT_ADMIN),
    "org_event.read": _org(TENANT_ADMIN),
    "org_webhook.read": _org(TENANT_ADMIN),
    "org_webhook.write": _org(TENANT_ADMIN),
    "self.read": SIGNED_IN,
    "key.read": SIGNED_IN,
    "key.write": SIGNED_IN,
    "token.read": SIGNED_IN,
    "token.write": SIGNED_IN,
    "invitation.accept": SIGNED_IN,
    "offer.read": SIGNED_IN,
    "offer.write": _platform(PLATFORM_ADMIN),
    "runtime_bundle.read": SIGNED_IN,
    "runtime_bundle.write": BUILDERS,
    "runtime_image.read": OPERATORS,
    "runtime_image.collect": OPERATORS,
    "price.read": SIGNED_IN,
    "price.write": _platform(PLATFORM_ADMIN),
    "usage.correct": _platform(PLATFORM_ADMIN),
    "org.write": _platform(PLATFORM_ADMIN),
    "org_quota.write": OPERATORS,
    "org.domains": _platform(PLATFORM_ADMIN),
    "user.write": _platform(PLATFORM_ADMIN),
    "user.read": OPERATORS,
    "break_glass.open": OPERATORS,
    "break_glass.read": OPERATORS,
    "node.read": OPERATORS,
    "node.write": OPERATORS,
    "platform.audit": _platform(PLATFORM_ADMIN),
    "platform.metrics": OPERATORS,
    "platform.doctor": OPERATORS,
    "login": PUBLIC,
    "oidc.login": PUBLIC,
    "oidc.token": PUBLIC,  # a one-time code and its verifier are the proof
    "invitation.signup": PUBLIC,  # the invitation's own secret is the proof
    "node.join": PUBLIC,
    "node.link": PUBLIC,  # the link authenticates by a signed challenge of its own
    "runtime_image.fetch": PUBLIC,  # by nodes, which sign the request with the key of their link
    "node.stream": PUBLIC,  # a dial-back authenticates by its one-time ticket
    "health": PUBLIC,
}


# What an operator may do on a tenant's objects, and only while a break-glass is open: enough to look into an incident
# and to stop a machine; nothing that lets anybody in, or that would outlast it.
BREAK_GLASS = "break_glass"
BREAK_GLASS_ACTIONS = frozenset(
    {
        "allocation.read",
        "allocation.plan",
        "allocation.restart",
        "allocation.access",
        "allocation.release",
        "operation.read",
        "reservation.read",
        "lease.read",
        "quota.read",
        "org_quota.read",
        "event.read",
        "project.read",
        "member.read",
        "service_account.read",
        "org.read",
        "audit.read",
    }
)


def role_allows(role: str | None, action: str) -> bool:
    if role == BREAK_GLASS:
        return action in BREAK_GLASS_ACTIONS
    return role in PERMISSIONS[action].roles


def scope_allows(scopes: tuple[str, ...], action: str) -> bool:
    """Whether a token's scopes cover an action: '*', 'read', 'noun.*' or the action's own name."""
    noun, _, verb = action.partition(".")
    return any(
        scope == "*" or scope == action or scope == f"{noun}.*" or (scope == "read" and verb in ("read", "plan"))
        for scope in scopes
    )


def is_scope(text: str) -> bool:
    if text in ("*", "read") or text in PERMISSIONS:
        return True
    return text.endswith(".*") and any(action.startswith(text[:-1]) for action in PERMISSIONS)
