"""The fleet, for operators."""

from collections.abc import Iterator, Sequence

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    ApproveSlots,
    Confirm,
    DrainRequest,
    JoinToken,
    NewJoinToken,
    NodePage,
    NodeView,
    Pool,
    Quarantine,
    StrayPage,
    StrayView,
)


class Nodes:
    def __init__(self, api: Api) -> None:
        self._api = api

    def join_token(
        self, *, org: str | None = None, approve_slots: bool = False, lifetime_seconds: int = 3600
    ) -> JoinToken:
        """Lets one node join, once. `approve_slots`: what it proposes is used without another look."""
        body = NewJoinToken(org, approve_slots, lifetime_seconds)
        return self._api.post(path("nodes", "join-tokens"), body, JoinToken)

    def list(self) -> Iterator[NodeView]:
        return self._api.pages(path("nodes"), NodePage)

    def show(self, name: str) -> NodeView:
        """With its slots, and what holds them."""
        return self._api.get(path("nodes", name), NodeView)

    def approve(self, name: str, slots: Sequence[str] = ()) -> NodeView:
        """The named slots, or every proposed one."""
        return self._api.post(path("nodes", name, "approve"), ApproveSlots([*slots]), NodeView)

    def drain(
        self, name: str, reason: str, *, slot: str | None = None, deadline_seconds: int | None = None
    ) -> NodeView:
        """Nothing new is placed on the node, or on one slot of it; at the deadline what is left there is released."""
        return self._api.post(_part(name, slot, "drain"), DrainRequest(reason, deadline_seconds), NodeView)

    def undrain(self, name: str, *, slot: str | None = None) -> NodeView:
        return self._api.post(_part(name, slot, "undrain"), None, NodeView)

    def quarantine(self, name: str, slot: str, reason: str) -> NodeView:
        """Sets a slot aside until it is returned; whoever has it keeps it."""
        return self._api.post(_part(name, slot, "quarantine"), Quarantine(reason), NodeView)

    def set_pool(self, name: str, org: str | None) -> NodeView:
        """None: everybody's."""
        return self._api.put(path("nodes", name, "pool"), Pool(org), NodeView)

    def strays(self, name: str) -> Iterator[StrayView]:
        """Machines that it has and a restored database does not know."""
        return self._api.pages(path("nodes", name, "strays"), StrayPage)

    def remove_stray(self, name: str, id: str) -> StrayView:
        """The node deletes it with all its data."""
        return self._api.post(path("nodes", name, "strays", id, "remove"), Confirm(id), StrayView)

    def return_slot(self, name: str, slot: str) -> NodeView:
        """Gives a quarantined slot back to placement."""
        return self._api.post(path("nodes", name, "slots", slot, "return"), None, NodeView)


def _part(node: str, slot: str | None, verb: str) -> str:
    return path("nodes", node, verb) if slot is None else path("nodes", node, "slots", slot, verb)
