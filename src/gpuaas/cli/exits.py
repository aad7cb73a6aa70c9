"""Errors become a message, the next thing to do, and an exit code that a script can use.

0    done
1    the operation failed
2    the command or its input is not valid
3    not signed in, or not allowed
4    not found
5    a conflict: the state, the name or the capacity does not allow it now
6    the server cannot be reached, or failed
130  interrupted
"""

from typing import Any

import click

from gpuaas.cli import output
from gpuaas.cli.invalid import Invalid
from gpuaas.kit.errors import HostError, Problem

OK, FAILED, USAGE, FORBIDDEN, NOT_FOUND, CONFLICT, SERVER, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

_BY_STATUS = {400: USAGE, 413: USAGE, 422: USAGE, 401: FORBIDDEN, 403: FORBIDDEN, 404: NOT_FOUND, 409: CONFLICT}


def of_status(status: int) -> int:
    return _BY_STATUS.get(status, SERVER)


def report(error: Exception, *, json: bool) -> int:
    """Prints an error that was raised on purpose and returns the exit code. All others are raised again."""
    if isinstance(error, click.ClickException):
        return _refused(error, json)
    from gpuaas.sdk import ApiError, OperationFailed, Unreachable

    match error:
        case ApiError():
            return _say(error.problem(), of_status(error.status), json)
        case Problem():
            found = _problem(error.code, error.status, error.message, error.hint)
            return _say({**error.extra, **found, "log": error.detail}, of_status(error.status), json)
        case HostError():
            return _say(_problem("host", 500, str(error), ""), FAILED, json)
        case OperationFailed():
            operation = error.operation
            hint = f"Look at its phases: `gpuaas op show {operation.id}`."
            if operation.kind == "restart" and operation.state == "failed":
                machine = operation.allocation_id
                hint += f"\nTry again with `gpuaas restart {machine}`, or give it back with `gpuaas release {machine}`."
            found = _problem(error.code, 0, f"The {operation.kind} {operation.state}: {error.message}", hint)
            return _say({**found, "correlation_id": operation.correlation_id or ""}, FAILED, json)
        case Unreachable():
            hint = "Check the address and your network; `gpuaas up` starts a server on this machine."
            return _say(_problem("unreachable", 503, str(error), hint), SERVER, json)
        case TimeoutError():
            return _say(_problem("timed_out", 504, str(error), "The work goes on; look again later."), SERVER, json)
    raise error


def _refused(error: click.ClickException, json: bool) -> int:
    usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
    hint = error.hint if isinstance(error, Invalid) else usage
    return _say(_problem("usage", 400, error.format_message(), hint), USAGE, json)


def _problem(code: str, status: int, detail: str, hint: str) -> dict[str, Any]:
    return {
        "type": f"urn:gpuaas:problem:{code}",
        "title": code.replace("_", " "),
        "status": status,
        "code": code,
        "detail": detail,
        "hint": hint,
        "correlation_id": "",
    }


def _say(problem: dict[str, Any], code: int, json: bool) -> int:
    if json:
        output.json(problem, err=True)
        return code
    output.echo(click.style("error: ", fg="red", bold=True) + output.safe(problem["detail"]), err=True)
    for line in str(problem["hint"]).splitlines():
        output.echo("  " + output.safe(line), err=True)
    for line in str(problem.get("log", "")).splitlines():
        output.echo(click.style("  | " + output.safe(line), dim=True), err=True)
    if problem["correlation_id"]:
        output.echo(click.style(f"  correlation id {output.safe(problem['correlation_id'])}", dim=True), err=True)
    return code
