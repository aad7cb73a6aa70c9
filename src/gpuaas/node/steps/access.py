"""Who gets in: the authorized keys and the machine's host key."""

from dataclasses import dataclass

import msgspec

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.step import Outcome
from gpuaas.wire.node import AllocationBody


@dataclass(frozen=True)
class Access:
    name: str = "access"
    needs: tuple[str, ...] = ()  # nobody should get in to a container that will not stop
    trouble: str = "Access to the machine could not be set up."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        return Outcome(host_key=host.access_ensure(id, body.keys))

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        host.access_remove(id)
        return Outcome()


def has_leased_keys(body: AllocationBody) -> bool:
    return any(key.leased for key in body.keys)


def without_leased_keys(body: AllocationBody) -> AllocationBody:
    """What is left of the access when the node's lease on the server has run out."""
    return msgspec.structs.replace(body, keys=[key for key in body.keys if not key.leased])
