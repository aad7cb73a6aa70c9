"""What an org lets single sign-on do. Domains are the operator's to give: who claims one gets its people."""

from gpuaas.control.app import access
from gpuaas.control.store import identity, oidc
from gpuaas.control.store.transaction import PLATFORM_ORG, Tx
from gpuaas.kit.errors import invalid, not_found
from gpuaas.model.identity import SERVICE_DOMAIN, Caller
from gpuaas.model.oidc import GroupRole, Settings


def show(tx: Tx, caller: Caller, org_name: str) -> Settings:
    return oidc.settings(tx, access.in_org(tx, caller, "org.read", org_name).id)


def set_domains(tx: Tx, caller: Caller, org_name: str, domains: list[str]) -> Settings:
    access.on_platform(tx, caller, "org.domains")
    org = identity.org(tx, org_name)
    if org is None or org.slug == PLATFORM_ORG:
        raise not_found("organisation", org_name)
    wanted = tuple(dict.fromkeys(name.lower() for name in domains))
    if any(name == SERVICE_DOMAIN or name.endswith(f".{SERVICE_DOMAIN}") for name in wanted):
        raise invalid("Addresses like this are those of service accounts.", "Give a domain of people.")
    changed = Settings(org.id, wanted, oidc.settings(tx, org.id).groups)
    oidc.set_settings(tx, changed)
    tx.audit("org.domains", org_id=org.id, kind="org", id=org.id, domains=list(wanted))
    return changed


def set_groups(tx: Tx, caller: Caller, org_name: str, groups: list[tuple[str, str, str]]) -> Settings:
    """(group, project, role), all of them; takes effect at everybody's next login."""
    org = access.in_org(tx, caller, "org.groups", org_name)
    projects = {name: project.id for project in identity.projects_of(tx, org.id) for name in (project.id, project.slug)}
    for _, project, _ in groups:
        if project not in projects:
            raise not_found("project", project)
    wanted = tuple(GroupRole(group, projects[project], role) for group, project, role in groups)
    changed = Settings(org.id, oidc.settings(tx, org.id).domains, wanted)
    oidc.set_settings(tx, changed)
    said = [[item.group, item.project_id, item.role] for item in wanted]
    tx.audit("org.groups", org_id=org.id, kind="org", id=org.id, groups=said)
    return changed
