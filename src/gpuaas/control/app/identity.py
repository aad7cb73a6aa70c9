"""Orgs, projects and members."""

from dataclasses import replace

from gpuaas.control.app import access
from gpuaas.control.operations import access as machine_access
from gpuaas.control.store import allocations, identity, keys
from gpuaas.control.store.transaction import PLATFORM_ORG, Tx
from gpuaas.kit.errors import conflict, invalid, not_found
from gpuaas.model.identity import SERVICE, SERVICE_DOMAIN, Caller, Member, Org, Project, User
from gpuaas.model.permission import TENANT_ADMIN, TENANT_MEMBER


def whoami(tx: Tx, caller: Caller) -> tuple[User, list[tuple[Org, str]], list[tuple[Project, str]]]:
    access.signed_in(tx, caller, "self.read")
    user = identity.user(tx, caller.user_id)
    assert user is not None
    return user, identity.orgs_of(tx, caller.user_id), identity.visible_projects(tx, caller.user_id)


def add_user(tx: Tx, email: str, name: str, password_hash: str | None, platform_role: str | None) -> User:
    checked_address(email)
    user = identity.insert_user(tx, email, name, password_hash, platform_role)
    if user is None:
        raise conflict("user_exists", f"There is a user {email.lower()} already.")
    org_id = identity.platform_org_id(tx)
    tx.audit("user.create", org_id=org_id, kind="user", id=user.id, email=user.email, platform_role=platform_role)
    return user


def checked_address(email: str) -> None:
    if email.lower().endswith(f".{SERVICE_DOMAIN}"):
        raise invalid("Addresses like this are those of service accounts.", "Give a person's own address.")


def create_org(tx: Tx, caller: Caller, slug: str, name: str, admin: str) -> Org:
    access.on_platform(tx, caller, "org.write")
    user = identity.user(tx, admin)
    if user is None or user.disabled_at is not None or user.kind == SERVICE:
        raise not_found("user", admin)
    return add_org(tx, slug, name, user)


def add_org(tx: Tx, slug: str, name: str, admin: User) -> Org:
    org = None if slug == PLATFORM_ORG else identity.insert_org(tx, slug, name)
    if org is None:
        raise conflict("name_taken", f"The slug {slug!r} is taken.", "Choose another slug.")
    identity.set_org_member(tx, org.id, admin.id, TENANT_ADMIN)
    tx.audit("org.create", org_id=org.id, kind="org", id=org.id, slug=slug, admin=admin.id)
    return org


def list_projects(tx: Tx, caller: Caller) -> list[tuple[Project, str]]:
    return list(access.projects(tx, caller, "project.read").values())


def create_project(tx: Tx, caller: Caller, slug: str, name: str, org_name: str | None) -> Project:
    org = access.in_org(tx, caller, "project.create", org_name)
    return add_project(tx, org, slug, name)


def add_project(tx: Tx, org: Org, slug: str, name: str) -> Project:
    project = identity.insert_project(tx, org.id, slug, name)
    if project is None:
        raise conflict("name_taken", f"{org.slug} has a project {slug!r} already.", "Choose another slug.")
    tx.audit("project.create", org_id=org.id, project_id=project.id, kind="project", id=project.id, slug=slug)
    tx.emit("project.created", org_id=org.id, project_id=project.id, kind="project", id=project.id, slug=slug)
    return project


def set_network(tx: Tx, caller: Caller, project_name: str, open_network: bool) -> Project:
    """Each machine follows when it is launched or restarted."""
    project = access.in_project(tx, caller, "project.network", project_name)
    identity.set_open_network(tx, project.id, open_network)
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "project", "id": project.id}
    tx.audit("project.network", **about, open=open_network)
    tx.emit("project.network", **about, open=open_network)
    return replace(project, open_network=open_network)


def list_members(tx: Tx, caller: Caller, project_name: str) -> list[Member]:
    project = access.in_project(tx, caller, "member.read", project_name)
    return identity.members(tx, project.id)


def set_member(tx: Tx, caller: Caller, project_name: str, user_name: str, role: str) -> Member:
    project = access.in_project(tx, caller, "member.write", project_name)
    user = identity.user(tx, user_name)
    if user is None or user.disabled_at is not None or user.project_id not in (None, project.id):
        raise not_found("user", user_name)
    identity.set_member(tx, project.id, user.id, role)
    if user.kind != SERVICE and identity.org_role(tx, project.org_id, user.id) is None:
        identity.set_org_member(tx, project.org_id, user.id, TENANT_MEMBER)
    _record(tx, "member.set", project, user.id, role=role)
    return Member(project.id, user.id, user.email, user.name, role, user.kind)


def remove_member(tx: Tx, caller: Caller, project_name: str, user_name: str) -> None:
    project = access.in_project(tx, caller, "member.write", project_name)
    user = identity.user(tx, user_name)
    if user is not None and user.kind == SERVICE and user.project_id == project.id:
        raise conflict("service_account", f"{user.email} is a service account of this project.", "Delete it instead.")
    if user is None or not leave(tx, project, user.id):
        raise not_found("member", user_name)
    _record(tx, "member.remove", project, user.id)


def leave(tx: Tx, project: Project, user_id: str) -> bool:
    """Out of a project, with what one has open there. False: was not in it."""
    if not identity.remove_member(tx, project.id, user_id):
        return False
    tx.wake(f"user:{user_id}")  # whoever follows something there is cut off now
    if identity.org_role(tx, project.org_id, user_id) != TENANT_ADMIN:  # who still has every right there
        machine_access.withdraw(tx, allocations.owned(tx, user_id, project.id), keys.keys(tx, user_id))
    return True


def _record(tx: Tx, action: str, project: Project, user_id: str, **data: str) -> None:
    tx.audit(action, org_id=project.org_id, project_id=project.id, kind="user", id=user_id, **data)
    tx.emit(action, org_id=project.org_id, project_id=project.id, kind="user", id=user_id, **data)
