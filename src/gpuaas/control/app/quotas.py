"""Quotas: operators set those of organisations, tenant administrators those of their projects."""

from gpuaas.control.app import access
from gpuaas.control.store import identity, quotas
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import not_found
from gpuaas.model.identity import Caller, Project
from gpuaas.model.quota import KINDS, Standing


def of_project(tx: Tx, caller: Caller, name: str) -> list[Standing]:
    """The project's own, and those of its organisation, which it shares with the other projects."""
    project = access.in_project(tx, caller, "quota.read", name)
    return _standings(tx, "project", project.id) + _standings(tx, "org", project.org_id)


def of_org(tx: Tx, caller: Caller, name: str) -> list[Standing]:
    return _standings(tx, "org", access.in_org(tx, caller, "org_quota.read", name).id)


def set_project(tx: Tx, caller: Caller, name: str, kind: str, most: int | None) -> list[Standing]:
    project = _project(tx, caller, name)
    _known(kind)
    quotas.set_(tx, project.id, project.org_id, kind, most)
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "project", "id": project.id}
    tx.audit("quota.set", **about, quota=kind, most=most)
    tx.emit("project.quota", **about, quota=kind, most=most)
    tx.wake("placement")
    return _standings(tx, "project", project.id)


def set_org(tx: Tx, caller: Caller, name: str, kind: str, most: int | None) -> list[Standing]:
    access.on_platform(tx, caller, "org_quota.write")
    org = identity.org(tx, name)
    if org is None:
        raise not_found("organisation", name)
    _known(kind)
    quotas.set_(tx, org.id, org.id, kind, most)
    tx.audit("org_quota.set", org_id=org.id, kind="org", id=org.id, quota=kind, most=most)
    tx.wake("placement")
    return _standings(tx, "org", org.id)


def _project(tx: Tx, caller: Caller, name: str) -> Project:
    """One of an organisation that the caller administers, a member of the project or not."""
    access.signed_in(tx, caller, "quota.write")
    for org, _ in identity.orgs_of(tx, caller.user_id):
        for project in identity.projects_of(tx, org.id):
            if name in (project.id, project.slug):
                access.in_org(tx, caller, "quota.write", org.id)
                return project
    raise not_found("project", name)


def _standings(tx: Tx, scope: str, owner_id: str) -> list[Standing]:
    limits = {quota.kind: quota.most for quota in quotas.of(tx, owner_id)}
    used = quotas.used(tx, scope, owner_id, set(KINDS))
    return [Standing(scope, owner_id, kind, limits.get(kind), used[kind]) for kind in KINDS]


def _known(kind: str) -> None:
    if kind not in KINDS:
        raise not_found("quota", kind)
