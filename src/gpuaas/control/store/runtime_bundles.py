"""The catalog of runtimes. `move` is the only writer of a version's state."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuaas.control.store.rows import jsonb, made, names, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.model.lifecycle import RUNTIME_BUNDLE
from gpuaas.model.runtime import RuntimeBundle

_SELECT = f"SELECT {names(RuntimeBundle)} FROM managed_runtime_bundles"
_INSERT = f"""
    INSERT INTO managed_runtime_bundles (id, project_id, slug, version, architecture, product, description, family,
        support, is_default, digest, size, requirements, manifest, state, created_by, created_at)
    VALUES (%(id)s, %(project_id)s, %(slug)s, %(version)s, %(architecture)s, %(product)s, %(description)s, %(family)s,
        %(support)s, %(is_default)s, %(digest)s, %(size)s, %(requirements)s, %(manifest)s, 'draft', %(created_by)s,
        %(now)s)
    RETURNING {names(RuntimeBundle)}
"""
_REWRITE = f"""
    UPDATE managed_runtime_bundles SET product = %(product)s, description = %(description)s, family = %(family)s,
        support = %(support)s, is_default = %(is_default)s, digest = %(digest)s, size = %(size)s,
        requirements = %(requirements)s, manifest = %(manifest)s, created_by = %(created_by)s
    WHERE id = %(id)s AND state = 'draft' RETURNING {names(RuntimeBundle)}
"""


def insert(tx: Tx, **values: Any) -> RuntimeBundle:
    """A draft. Taken: the catalog has this version."""
    with unique():
        row = tx.run(_INSERT, {"id": tx.ids.new("rb"), "now": tx.now, **_plain(values)}).fetchone()
    assert row is not None
    return made(RuntimeBundle, row)


def rewrite(tx: Tx, bundle: RuntimeBundle, **values: Any) -> RuntimeBundle:
    """A draft is what was said of it last."""
    row = tx.run(_REWRITE, {"id": bundle.id, **_plain(values)}).fetchone()
    if row is None:
        raise Stale(f"runtime bundle {bundle.id} is no draft any more")
    return made(RuntimeBundle, row)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: jsonb(value) if isinstance(value, dict) else value for name, value in values.items()}


def by_name(
    tx: Tx, slug: str, version: str, architecture: str, project_id: str | None, *, lock: bool = False
) -> RuntimeBundle | None:
    statement = f"""{_SELECT} WHERE slug = %(slug)s AND version = %(version)s AND architecture = %(architecture)s
        AND coalesce(project_id, '') = %(project_id)s {"FOR NO KEY UPDATE" if lock else ""}"""
    values = {"slug": slug, "version": version, "architecture": architecture, "project_id": project_id or ""}
    row = tx.run(statement, values).fetchone()
    return None if row is None else made(RuntimeBundle, row)


def by_id(tx: Tx, id: str, *, lock: bool = False) -> RuntimeBundle | None:
    row = tx.run(f"{_SELECT} WHERE id = %(id)s {'FOR NO KEY UPDATE' if lock else ''}", {"id": id}).fetchone()
    return None if row is None else made(RuntimeBundle, row)


def builds(tx: Tx, bundle: RuntimeBundle) -> list[RuntimeBundle]:
    """This version as it is published, for every architecture."""
    statement = f"""{_SELECT} WHERE slug = %(slug)s AND version = %(version)s AND state = 'published'
        AND coalesce(project_id, '') = %(project)s ORDER BY architecture"""
    values = {"slug": bundle.slug, "version": bundle.version, "project": bundle.project_id or ""}
    return [made(RuntimeBundle, row) for row in tx.run(statement, values)]


def by_digest(tx: Tx, digest: str) -> list[RuntimeBundle]:
    return [made(RuntimeBundle, row) for row in tx.run(f"{_SELECT} WHERE digest = %(digest)s", {"digest": digest})]


def of_project(tx: Tx, project_id: str, *, lock: bool = False) -> list[RuntimeBundle]:
    """By name. `lock`: nobody else describes one of this project meanwhile, so that what is counted stays so."""
    if lock:
        key = {"project": f"runtime bundles of {project_id}"}
        tx.run("SELECT pg_advisory_xact_lock(hashtextextended(%(project)s, 0))", key)
    statement = f"{_SELECT} WHERE project_id = %(project)s ORDER BY slug, version, architecture, id"
    return [made(RuntimeBundle, row) for row in tx.run(statement, {"project": project_id})]


def is_of_platform(tx: Tx, slug: str) -> bool:
    """Whether everybody knows a bundle by this name, or knew one."""
    statement = """SELECT 1 FROM managed_runtime_bundles
        WHERE slug = %(slug)s AND project_id IS NULL AND state <> 'draft' LIMIT 1"""
    return tx.run(statement, {"slug": slug}).fetchone() is not None


def remove_draft(tx: Tx, bundle: RuntimeBundle) -> None:
    """Nothing was ever made of it. What was published stays: history points at it."""
    row = tx.run("DELETE FROM managed_runtime_bundles WHERE id = %(id)s AND state = 'draft' RETURNING id",
                 {"id": bundle.id}).fetchone()  # fmt: skip
    if row is None:
        raise Stale(f"runtime bundle {bundle.id} is no draft any more")


def machines_with(tx: Tx, id: str) -> int:
    """How many have this version, or want it, or have it beside the current one."""
    statement = """SELECT count(DISTINCT allocation_id) FROM allocation_runtimes
        WHERE bundle_id = %(id)s AND ended_at IS NULL"""
    row = tx.run(statement, {"id": id}).fetchone()
    assert row is not None
    return int(row[0])


def wanted_on(tx: Tx, node_id: str, ids: Sequence[str]) -> set[str]:
    """Those of these versions that a machine of this node should see."""
    rows = tx.run(
        """SELECT DISTINCT r.bundle_id FROM allocation_runtimes r JOIN allocations a ON a.id = r.allocation_id
            WHERE r.bundle_id = ANY(%(ids)s::text[]) AND r.ended_at IS NULL AND a.node_id = %(node)s""",
        {"ids": list(ids), "node": node_id},
    )
    return {str(row[0]) for row in rows}


def lock_all(tx: Tx, digests: Sequence[str]) -> None:
    """Waits for whoever changes a version with one of these images, and has all others wait for us."""
    statement = """SELECT id FROM managed_runtime_bundles WHERE digest = ANY(%(digests)s::text[])
        ORDER BY id FOR NO KEY UPDATE"""
    tx.run(statement, {"digests": list(digests)}).fetchall()


def needed(tx: Tx, digests: Sequence[str], since: datetime, project_id: str | None) -> set[str]:
    """Those of these images that somebody can still ask for: all that is published, what is deprecated while a machine
    has it, and whatever was deprecated or described after `since`. `project_id`: whose images they are."""
    named = {"digests": list(digests), "since": since, "project": project_id}
    rows = tx.run(
        """SELECT b.digest FROM managed_runtime_bundles b WHERE b.digest = ANY(%(digests)s::text[])
            AND (%(project)s::text IS NULL OR b.project_id = %(project)s) AND (
            b.state = 'published'
            OR b.state = 'draft' AND b.created_at > %(since)s
            OR b.state = 'deprecated' AND (b.deprecated_at > %(since)s OR EXISTS (
                SELECT 1 FROM allocation_runtimes r WHERE r.bundle_id = b.id AND r.ended_at IS NULL)))""",
        named,
    )
    return {str(row[0]) for row in rows}


def visible(
    tx: Tx,
    project_ids: Sequence[str] | None,
    states: Sequence[str],
    *,
    after: tuple[str, str] | None = None,
    limit: int = 10_000,
) -> list[RuntimeBundle]:
    """The platform's, and those of these projects, or of all."""
    slug, id = after or ("", "")
    mine = "" if project_ids is None else "AND (project_id IS NULL OR project_id = ANY(%(projects)s::text[]))"
    statement = f"""{_SELECT} WHERE state = ANY(%(states)s::text[]) {mine}
        AND (slug, id) > (%(slug)s, %(id)s) ORDER BY slug, id LIMIT %(limit)s"""
    values = {"projects": project_ids, "states": list(states), "slug": slug, "id": id, "limit": limit}
    return [made(RuntimeBundle, row) for row in tx.run(statement, values)]


def manifest(tx: Tx, id: str) -> dict[str, Any]:
    row = tx.run("SELECT manifest FROM managed_runtime_bundles WHERE id = %(id)s", {"id": id}).fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found


def move(tx: Tx, bundle: RuntimeBundle, event: str) -> RuntimeBundle:
    becomes = RUNTIME_BUNDLE.next(bundle.state, event)
    statement = f"""UPDATE managed_runtime_bundles SET state = %(becomes)s, {becomes}_at = %(now)s
        WHERE id = %(id)s AND state = %(state)s RETURNING {names(RuntimeBundle)}"""
    values = {"id": bundle.id, "state": bundle.state, "becomes": becomes, "now": tx.now}
    row = tx.run(statement, values).fetchone() if becomes else None
    if row is None:
        raise Stale(f"runtime bundle {bundle.id} is {bundle.state}: {event} means nothing there")
    return made(RuntimeBundle, row)
