"""The node's own key: made here, never leaves, and signs what proves that this node is itself."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuaas.kit.errors import Problem
from gpuaas.node.host.interface import Disk
from gpuaas.wire import node_request

KEY_FILE = "node.key"


class Identity:
    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public_key(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def sign_join(self, token: str) -> str:
        return self._key.sign(b"gpuaas-node-join:" + token.encode()).hex()

    def sign_link(self, nonce: str) -> str:
        return self._key.sign(b"gpuaas-node-link:" + nonce.encode()).hex()

    def sign_request(self, method: str, path: str, at: int) -> str:
        return self._key.sign(node_request.signed(method, path, at)).hex()


def identity(disk: Disk) -> Identity:
    """The key of this node; made when there is none yet."""
    data = disk.read(KEY_FILE)
    if data is None:
        key = Ed25519PrivateKey.generate()
        disk.write(KEY_FILE, key.private_bytes_raw())
        return Identity(key)
    try:
        return Identity(Ed25519PrivateKey.from_private_bytes(data))
    except ValueError as error:
        raise Problem(
            "bad_node_key",
            500,
            "The key of this node cannot be read.",
            f"Restore {KEY_FILE} in the agent's state directory, or remove it and join the node again.",
        ) from error
