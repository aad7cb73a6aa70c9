"""The OpenAPI document: Litestar's, plus what holds for every route (errors, permission, Idempotency-Key)."""

from typing import Any

from litestar import Litestar

from gpuaas.model.permission import PERMISSIONS
from gpuaas.wire import api

MUTATIONS = {"post", "put", "delete", "patch"}
READING_POSTS = {"allocation.plan"}  # a POST because it has a body; nothing changes
ERRORS = {
    "401": "No valid token",
    "403": "The role or the token does not allow it; the missing permission is named",
    "404": "There is no such object that you can see",
    "409": "It is in the wrong state, taken, or being worked on",
    "413": "The body is too large",
    "422": "The request is not valid",
    "429": "Asked too often; try again after Retry-After",
    "503": "The store did not answer; try again after Retry-After",
}
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem details. `code` is stable.",
    "required": ["type", "title", "status", "code", "detail", "hint", "correlation_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "examples": ["no_capacity"]},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "correlation_id": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Same key and same request: same answer, one effect.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "Login": {"email": "ada@example.org", "password": "correct horse battery"},
    "NewToken": {"name": "ci", "scopes": ["read"], "lifetime_seconds": 86400},
    "NewKey": {
        "name": "laptop",
        "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHnVv2FPZVxa8ma0xhuTcVqHdqUbKSAXcBhAXwdCTBNi",
    },
    "NewUser": {"email": "ada@example.org", "name": "Ada", "password": "correct horse battery"},
    "DisableUser": {"confirm": "ada@example.org", "reason": "left the company"},
    "NewOrg": {"slug": "acme", "name": "Acme", "admin": "ada@example.org"},
    "NewProject": {"slug": "vision", "name": "Vision"},
    "MemberRole": {"role": "editor"},
    "ProjectNetwork": {"open": True},
    "NewServiceAccount": {"name": "ci", "role": "editor"},
    "NewServiceToken": {"name": "pipeline", "scopes": ["allocation.*"], "lifetime_seconds": 2592000},
    "NewWebhook": {"name": "chat", "url": "https://hooks.example.org/gpuaas", "types": ["allocation.*"]},
    "WebhookChange": {"enabled": False},
    "Rotation": {"overlap_seconds": 86400},
    "Replay": {"first": 12, "last": 40},
    "NewInvitation": {"email": "ada@example.org", "role": "editor"},
    "NewOrgInvitation": {"email": "ada@example.org", "role": "tenant_member"},
    "AcceptInvitation": {"secret": "gpi_uL1xv7cXoN0T2bZk3q5d9g"},
    "Signup": {"secret": "gpi_uL1xv7cXoN0T2bZk3q5d9g", "name": "Ada", "password": "correct horse battery"},
    "OidcCode": {"code": "gpc_uL1xv7cXoN0T2bZk3q5d9g", "verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
    "OidcDomains": {"domains": ["example.org"]},
    "OidcGroups": {"groups": [{"group": "ml-engineers", "project": "vision", "role": "editor"}]},
    "OpenBreakGlass": {"org": "acme", "reason": "INC-42: machine floods the network", "duration_seconds": 3600},
    "NewOffer": {
        "slug": "h100-1",
        "name": "One H100",
        "gpu_model": "H100",
        "gpu_count": 1,
        "cpus": 16,
        "memory_mib": 131072,
    },
    "Launch": {"name": "train-1", "offer": "h100-1", "access": {"keys": ["laptop"]}, "wait": True},
    "NewReservation": {
        "name": "demo",
        "offer": "h100-8",
        "starts_at": "2030-01-31T12:00:00Z",
        "ends_at": "2030-01-31T18:00:00Z",
        "launch": {"name": "demo"},
    },
    "ApplyRuntime": {"runtime_bundle_slug": "pytorch"},
    "RollbackRuntime": {"version": "2.13.0-cpu"},
    "NewRuntimeBundle": {"manifest": {"bundle": "python", "version": "3.11+ml", "format": 1}},
    "PlanRequest": {"offer": "h100-1", "count": 2},
    "Confirm": {"confirm": "train-1"},
    "MachineKeys": {"keys": ["laptop"]},
    "Extend": {"seconds": 14400},
    "LeasePolicyRequest": {"idle_seconds": 7200, "idle_gpu_percent": 5, "max_duration_seconds": 86400},
    "NewPriceBook": {"offers": {"h100-1": 2500000}, "note": "Autumn prices"},
    "NewCorrection": {"usage": "ug-h4xk2q7wnd3mzy5c", "reason": "The node was slow that day."},
    "NewBudget": {"amount_micros": 500000000},
    "NewJoinToken": {"approve_slots": True, "lifetime_seconds": 3600},
    "ApproveSlots": {"slots": ["gpu0"]},
    "HealthView": {
        "allocation_id": "al-h4xk2q7wnd3mzy5c",
        "name": "train-1",
        "project_id": "pj-h4xk2q7wnd3mzy5c",
        "state": "active",
        "status": "degraded",
        "findings": [{"code": "memory_near_limit", "level": "degraded", "message": "It uses 97 % of its memory."}],
        "use": None,
    },
}


def document(app: Litestar) -> dict[str, Any]:
    found: dict[str, Any] = app.openapi_schema.to_schema()
    schemas = found["components"].setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    for kind in api.In.__subclasses__():
        if kind.__name__ in schemas:
            schemas[kind.__name__]["additionalProperties"] = False
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    actions, binary = _actions(app), _actions(app, "binary")
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            action = actions[path, method.upper()]
            public = PERMISSIONS[action].scope == "public"
            operation["x-permission"] = action
            if public:
                operation["security"] = []
            operation["responses"].get("204", {}).pop("content", None)
            if (path, method.upper()) in binary:
                operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
            for status, description in ERRORS.items():
                operation["responses"][status] = {
                    "description": description,
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            operation["responses"]["400"] = {**operation["responses"]["422"], "description": "Not readable"}
            if method in MUTATIONS and not public and action not in READING_POSTS:
                operation.setdefault("parameters", []).append(IDEMPOTENCY_KEY)
    return found


def _actions(app: Litestar, said: str = "action") -> dict[tuple[str, str], Any]:
    """What each route says of itself."""
    actions = {}
    for route in app.routes:
        found: Any = route
        for handler in getattr(found, "route_handlers", []):
            path = route.path_format
            for method in handler.http_methods:
                if said in handler.opt:
                    actions[path, method] = handler.opt[said]
    return actions
