"""The fleet, for operators."""

from collections.abc import Iterator, Sequence

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import ApproveSlots, JoinToken, NewJoinToken, NodePage, NodeView


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

    def return_slot(self, name: str, slot: str) -> NodeView:
        """Gives a quarantined slot back to placement."""
        return self._api.post(path("nodes", name, "slots", slot, "return"), None, NodeView)
