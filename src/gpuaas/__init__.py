"""GPUaaS: machines with GPUs as a service. Start reading at ARCHITECTURE.md.

The Python SDK is here too: `gpuaas.Client` and the errors it raises, loaded when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuaas.sdk import ApiError as ApiError
    from gpuaas.sdk import Client as Client
    from gpuaas.sdk import GpuaasError as GpuaasError
    from gpuaas.sdk import OperationFailed as OperationFailed
    from gpuaas.sdk import Unreachable as Unreachable

__version__ = "0.1.0"
__all__ = ["ApiError", "Client", "GpuaasError", "OperationFailed", "Unreachable", "__version__"]


def __getattr__(name: str) -> Any:
    # The server and the agent import this package too, and need no HTTP client.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("gpuaas.sdk"), name)
