"""The one place that decides who may do what. Every function here records the action on the transaction.

What a caller cannot see does not exist (404). What a caller sees but may not do is refused by name (403).
"""

from gpuaas.control.store import break_glass, identity
from gpuaas.control.store.admission import Admission, admission
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, invalid, not_found
from gpuaas.kit.ids import is_id
from gpuaas.model.identity import Caller, Org, Project
from gpuaas.model.permission import BREAK_GLASS, PERMISSIONS, role_allows, scope_allows


def signed_in(tx: Tx, caller: Caller, action: str) -> None:
    """For what concerns only the caller."""
    _covered(tx, caller, action)


def on_platform(tx: Tx, caller: Caller, action: str) -> None:
    _covered(tx, caller, action)
    if caller.platform_role not in PERMISSIONS[action].roles:
        raise _forbidden(action)


def in_org(tx: Tx, caller: Caller, action: str, name: str | None) -> Org:
    """`name` may be left out by a member of one org."""
    _covered(tx, caller, action)
    found = [(org, role) for org, role in _orgs(tx, caller) if name is None or name in (org.id, org.slug)]
    if not found:
        raise not_found("organisation", name) if name else _belongs_nowhere("organisation")
    if len(found) > 1:
        raise invalid("You belong to several organisations.", "Say which: " + ", ".join(org.slug for org, _ in found))
    org, role = found[0]
    if not role_allows(role, action):
        raise _forbidden(action)
    return org


def in_project(tx: Tx, caller: Caller, action: str, name: str | None) -> Project:
    """By id or slug; `name` may be left out by somebody who sees one project."""
    _covered(tx, caller, action)
    visible = _projects(tx, caller)
    found = [(project, role) for project, role in visible if name is None or name in (project.id, project.slug)]
    if not found:
        raise not_found("project", name) if name else _belongs_nowhere("project")
    if len(found) > 1:
        listed = ", ".join(f"{project.slug} ({project.id})" for project, _ in found)
        raise invalid("Several projects fit.", f"Say which one, by id where slugs are equal: {listed}")
    project, role = found[0]
    if not role_allows(role, action):
        raise _forbidden(action)
    return project


def admitted(tx: Tx, caller: Caller, action: str, name: str | None, offer: str) -> tuple[Project, Admission]:
    """The same for whoever launches, and all that this takes. A project that is named by its id is not looked for
    first: except for operators, who may have broken into it, and for whoever is not in it, who is told why."""
    _covered(tx, caller, action)
    if name is None or not is_id(name, "pj") or caller.platform_role:
        name = in_project(tx, caller, action, name).id
    found = admission(tx, name, caller.user_id, offer)
    if found.project is None:
        found = admission(tx, in_project(tx, caller, action, name).id, caller.user_id, offer)
    if found.project is None:
        raise not_found("project", name)  # taken out of it in this moment
    on_object(tx, action, found.role)
    return found.project, found


def projects(tx: Tx, caller: Caller, action: str) -> dict[str, tuple[Project, str]]:
    """Every project that the caller sees, by id, with the role there. Check single objects with `on_object`."""
    _covered(tx, caller, action)
    return {project.id: (project, role) for project, role in _projects(tx, caller)}


def on_object(tx: Tx, action: str, role: str) -> None:
    """For an object found in one of `projects`: does the role there allow it?"""
    if not role_allows(role, action):
        raise _forbidden(action)


def leads(tx: Tx, caller: Caller, project_id: str) -> bool:
    """Whether they set the rules of a project. For verbs of every member that rules limit: who sets them is above."""
    role = next((role for project, role in _projects(tx, caller) if project.id == project_id), "")
    return role_allows(role, "lease.write") and scope_allows(caller.scopes, "lease.write")


def still(tx: Tx, caller: Caller, action: str, project_id: str | None) -> None:
    """Whether a caller who did this before may be told about it again."""
    _covered(tx, caller, action)
    permission = PERMISSIONS[action]
    if permission.scope == "platform":
        on_platform(tx, caller, action)
    if project_id is not None:
        roles = {project.id: role for project, role in _projects(tx, caller)}
        if project_id not in roles:
            raise not_found("project", project_id)
        if permission.scope == "project":
            on_object(tx, action, roles[project_id])


def _orgs(tx: Tx, caller: Caller) -> list[tuple[Org, str]]:
    mine = identity.orgs_of(tx, caller.user_id)
    known = {org.id for org, _ in mine}
    return mine + [(org, BREAK_GLASS) for org in _broken_into(tx, caller) if org.id not in known]


def _projects(tx: Tx, caller: Caller) -> list[tuple[Project, str]]:
    mine = identity.visible_projects(tx, caller.user_id)
    known = {project.id for project, _ in mine}
    opened = [project for org in _broken_into(tx, caller) for project in identity.projects_of(tx, org.id)]
    return mine + [(project, BREAK_GLASS) for project in opened if project.id not in known]


def _broken_into(tx: Tx, caller: Caller) -> list[Org]:
    """Whose objects an operator may act on right now. What they do there carries the reason's id in its audit entry."""
    if caller.platform_role is None:
        return []
    found = break_glass.open_of(tx, caller.user_id)
    tx.break_glass.update({org.id: entry.id for entry, org in found})
    return [org for _, org in found]


def _covered(tx: Tx, caller: Caller, action: str) -> None:
    tx.authorized.add(action)
    if not scope_allows(caller.scopes, action):
        raise Problem(
            "token_scope",
            403,
            f"This token does not cover {action}.",
            f"It covers {', '.join(caller.scopes)}. Make a token whose scopes include {action}.",
            extra={"permission": action},
        )


def _belongs_nowhere(kind: str) -> Problem:
    return Problem("not_found", 404, f"You belong to no {kind} yet.", "Ask an administrator to add you to one.")


def _forbidden(action: str) -> Problem:
    roles = ", ".join(sorted(PERMISSIONS[action].roles))
    return Problem(
        "forbidden",
        403,
        f"You need the permission {action}.",
        f"Ask for one of these roles: {roles}.",
        extra={"permission": action},
    )
