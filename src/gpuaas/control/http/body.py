"""Request bodies: JSON, decoded strictly into the type that the route names.

Litestar by itself would take "1" for 1 and "true" for true, and answer 500 to bytes that are not UTF-8.
"""

from typing import Any

import msgspec
from litestar import Request

from gpuaas.control.http.problems import PLAIN, readable
from gpuaas.kit.errors import Problem, invalid


class StrictRequest(Request[Any, Any, Any]):
    async def json(self) -> Any:
        wanted = self.route_handler.parsed_fn_signature.parameters["data"].annotation
        try:
            return msgspec.json.decode(await self.body(), type=wanted)
        except msgspec.ValidationError as error:
            raise _invalid(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            code, message, hint = PLAIN[400]
            raise Problem(code, 400, message, hint, detail=str(error)) from None


def _invalid(said: str) -> Problem:
    message, _, where = said.partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".") or "body"
    message = readable(message)
    return invalid(
        f"The request is not valid: {field}: {message}.",
        "Correct it and send it again.",
        errors=[{"field": field, "message": message}],
    )
