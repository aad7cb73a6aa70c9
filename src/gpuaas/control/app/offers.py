"""What is sold."""

from typing import Any

from gpuaas.control.app import access
from gpuaas.control.store import identity, offers
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.node import Offer


def list_offers(tx: Tx, caller: Caller) -> list[Offer]:
    access.signed_in(tx, caller, "offer.read")
    return offers.offers(tx)


def create_offer(tx: Tx, caller: Caller, **values: Any) -> Offer:
    access.on_platform(tx, caller, "offer.write")
    return add_offer(tx, **values)


def add_offer(tx: Tx, **values: Any) -> Offer:
    offer = offers.insert_offer(tx, **values)
    if offer is None:
        raise conflict("name_taken", f"There is an offer {values['slug']!r} already.", "Choose another slug.")
    tx.audit("offer.create", org_id=identity.platform_org_id(tx), kind="offer", id=offer.id, slug=offer.slug)
    return offer


def usable_offer(tx: Tx, name: str) -> Offer:
    return usable(offers.offer(tx, name), name)


def usable(offer: Offer | None, name: str) -> Offer:
    if offer is None or not offer.enabled:
        raise not_found("offer", name)
    return offer
