"""The Python SDK: a typed, synchronous client of the HTTP API. The CLI stands on it.

client      one object, a field per resource (`client.allocations.launch(...)`)
resources   one file per resource, a method per route
api         typed calls: paths, bodies, pages
transport   the only code that talks HTTP: idempotency keys, retries, streams
follow, sse streams that survive a lost connection
"""

from gpuaas.sdk.client import Client
from gpuaas.sdk.errors import ApiError, GpuaasError, OperationFailed, Unreachable

__all__ = ["ApiError", "Client", "GpuaasError", "OperationFailed", "Unreachable"]
