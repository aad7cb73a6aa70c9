"""Price books: read by everybody, published by platform administrators, changed by nobody."""

from datetime import datetime

from gpuaas.control.app import access
from gpuaas.control.store import identity, offers, prices
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Taken, conflict, invalid, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.price import PriceBook, Prices, valid_at


def list_books(tx: Tx, caller: Caller) -> tuple[list[PriceBook], int | None]:
    """All versions, the newest first, and which one is valid now."""
    access.signed_in(tx, caller, "price.read")
    found = prices.books(tx)
    valid = valid_at(tx.now, found)
    return found[::-1], valid.version if valid else None


def publish(tx: Tx, caller: Caller, found: Prices, valid_from: datetime | None, note: str) -> PriceBook:
    access.on_platform(tx, caller, "price.write")
    if valid_from is not None and valid_from < tx.now:
        raise invalid(
            "A price book cannot become valid in the past.",
            "What was counted so far keeps its price; leave the time out for now, or give a later one.",
            code="in_the_past",
        )
    for slug in found.offers:
        if offers.offer(tx, slug) is None:
            raise not_found("offer", slug)
    if not (found.offers or found.gpus or found.cpu or found.memory_gib):
        raise invalid("A price book must name at least one price.")
    try:
        book = prices.insert_book(tx, valid_from or tx.now, found, note)
    except Taken as error:
        raise conflict(
            "price_race", "Somebody else published prices in this moment.", "Look at theirs first."
        ) from error
    tx.audit(
        "price.publish",
        org_id=identity.platform_org_id(tx),
        kind="price_book",
        id=str(book.version),
        valid_from=book.valid_from.isoformat(),
        note=note,
    )
    return book
