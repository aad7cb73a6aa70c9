"""Compute offers: what is sold."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, made, many, names
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.ids import is_id
from gpuaas.model.node import Offer


def insert_offer(tx: Tx, **values: Any) -> Offer | None:
    """None when the slug is taken."""
    row = {"id": tx.ids.new("of"), "enabled": True, "created_at": tx.now, **values}
    made = tx.conn.execute(upsert(t.offers).values(**row).on_conflict_do_nothing().returning(t.offers.c.id)).first()
    return Offer(**{**row, "realisations": tuple(row["realisations"])}) if made else None


_OFFER = f"SELECT {names(Offer)} FROM offers WHERE {{by}} = %(name)s"


def asked(name: str) -> tuple[str, dict[str, str]]:
    """The statement that finds it, by id or slug."""
    return _OFFER.format(by="id" if is_id(name, "of") else "slug"), {"name": name}


def offer(tx: Tx, name: str) -> Offer | None:
    """By id or slug."""
    row = tx.run(*asked(name)).fetchone()
    return None if row is None else made(Offer, row)


def offers(tx: Tx) -> list[Offer]:
    statement = select(*columns(t.offers, Offer)).where(t.offers.c.enabled)
    return many(tx.conn, statement.order_by(t.offers.c.gpu_model, t.offers.c.gpu_count, t.offers.c.slug), Offer)


def slugs(tx: Tx, ids: set[str]) -> dict[str, str]:
    rows = tx.conn.execute(select(t.offers.c.id, t.offers.c.slug).where(t.offers.c.id.in_(sorted(ids))))
    return {row.id: row.slug for row in rows}
