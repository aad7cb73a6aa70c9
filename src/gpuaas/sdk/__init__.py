"""The Python SDK: a typed, synchronous client of the HTTP API. The CLI stands on it.

client      one object, a field per resource (`client.allocations.launch(...)`)
resources   one file per resource, a method per route
api         typed calls: paths, bodies, pages
transport   the only code that talks HTTP: idempotency keys, retries, streams
follow, sse streams that survive a lost connection
webhooks    for whoever receives them: verify_webhook
"""

from gpuaas.sdk.client import Client
from gpuaas.sdk.errors import ApiError, GpuaasError, OperationFailed, Unreachable
from gpuaas.sdk.webhooks import NotGenuine, verify_webhook

__all__ = ["ApiError", "Client", "GpuaasError", "NotGenuine", "OperationFailed", "Unreachable", "verify_webhook"]
