"""Errors on the wire: RFC 9457 problem details, made in this one place."""

import logging
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

from gpuaas.kit.errors import Problem, Stale

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
PLAIN = {
    400: ("bad_request", "The request cannot be read.", "Check that the body is valid JSON."),
    404: ("no_such_route", "There is nothing at this address.", "See /api/v1/openapi.json for what there is."),
    405: ("method_not_allowed", "This address does not take that method.", "See /api/v1/openapi.json."),
    413: ("too_large", "The body is too large.", "A request has at most 256 KiB."),
    415: ("unsupported_media_type", "The body must be JSON.", "Send Content-Type: application/json."),
}


def respond(request: ASGIConnection[Any, Any, Any, Any], problem: Problem) -> Response[bytes]:
    correlation_id = request.scope["state"]["correlation_id"]
    if problem.detail or problem.status >= 500:
        log.warning("%s: %s", problem.code, problem.detail or problem.message)
    headers = {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="gpuaas"'
    if "retry_after" in problem.extra:
        headers["Retry-After"] = str(problem.extra["retry_after"])
    body = {
        "type": f"urn:gpuaas:problem:{problem.code}",
        "title": problem.code.replace("_", " "),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.message,
        "hint": problem.hint,
        "correlation_id": correlation_id,
        **problem.extra,
    }
    return Response(
        content=msgspec.json.encode(body), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


def _problem(request: Request[Any, Any, Any], error: Problem) -> Response[bytes]:
    return respond(request, error)


def _invalid(request: Request[Any, Any, Any], error: ValidationException) -> Response[bytes]:
    extra = error.extra if isinstance(error.extra, list) else []
    errors = [
        {"field": str(item.get("key", "")), "message": readable(str(item.get("message", "")))}
        for item in extra
        if isinstance(item, dict)
    ]
    said = "; ".join(f"{item['field']}: {item['message']}" for item in errors) or readable(error.detail)
    return respond(
        request,
        Problem("invalid_request", 422, f"The request is not valid: {said}.", "Correct it and send it again.",
                extra={"errors": errors}),
    )  # fmt: skip


def readable(message: str) -> str:
    """msgspec speaks of regular expressions; people should not have to."""
    if "matching regex" in message:
        where = message.partition(" - at ")[2]
        return "has characters or a form that are not allowed here" + (f" (at {where})" if where else "")
    return message.rstrip(".")


def _http(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    code, message, hint = PLAIN.get(error.status_code, ("http_error", error.detail, ""))
    return respond(request, Problem(code, error.status_code, message, hint))


def _stale(request: Request[Any, Any, Any], error: Stale) -> Response[bytes]:
    return respond(
        request,
        Problem(
            "changed_meanwhile", 409, "It changed in the same moment.", "Look again, then retry.", detail=str(error)
        ),
    )


def _bug(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.exception("a request failed", exc_info=error)
    return respond(
        request,
        Problem("internal", 500, "Something broke on our side.", "Report the correlation id to your operator."),
    )


HANDLERS: ExceptionHandlersMap = {
    Problem: _problem,
    ValidationException: _invalid,
    HTTPException: _http,
    Stale: _stale,
    Exception: _bug,
}
