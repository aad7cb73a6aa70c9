"""How a node proves who asks, where it fetches over HTTP: three headers, signed with the key of its link (Ed25519)."""

NODE = "Gpuaas-Node"  # its id
TIME = "Gpuaas-Node-Time"  # Unix time in whole seconds
SIGNATURE = "Gpuaas-Node-Signature"  # over `signed`, hex
TOLERANCE_SECONDS = 300


def signed(method: str, path: str, at: int) -> bytes:
    """`path` from its first slash, without a query: /api/v1/runtime-images/<sha256>."""
    return f"gpuaas-node-request:{method}\n{path}\n{at}".encode()


def image_path(digest: str) -> str:
    return f"/api/v1/runtime-images/{digest}"
