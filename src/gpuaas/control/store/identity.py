"""Orgs, projects, users, memberships."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, literal, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.noted import noted, noting
from gpuaas.control.store.rows import columns, made, many, names, one
from gpuaas.control.store.transaction import PLATFORM_ORG, Tx
from gpuaas.kit.ids import is_id
from gpuaas.model.identity import Member, Org, Project, User
from gpuaas.model.permission import PLATFORM_ADMIN, TENANT_ADMIN


def platform_org_id(tx: Tx) -> str:
    """The org that platform-wide audit entries belong to; made on first use."""
    found = tx.conn.execute(select(t.orgs.c.id).where(t.orgs.c.slug == PLATFORM_ORG)).scalar_one_or_none()
    if found:
        return str(found)
    made = upsert(t.orgs).values(id=tx.ids.new("og"), slug=PLATFORM_ORG, name="Platform", created_at=tx.now)
    tx.conn.execute(made.on_conflict_do_nothing())
    return str(tx.conn.execute(select(t.orgs.c.id).where(t.orgs.c.slug == PLATFORM_ORG)).scalar_one())


def insert_org(tx: Tx, slug: str, name: str) -> Org | None:
    """None when the slug is taken."""
    row: dict[str, Any] = {"id": tx.ids.new("og"), "slug": slug, "name": name, "created_at": tx.now}
    made = tx.conn.execute(upsert(t.orgs).values(**row).on_conflict_do_nothing().returning(t.orgs.c.id)).first()
    return Org(**row) if made else None


def org(tx: Tx, name: str) -> Org | None:
    by = t.orgs.c.id if is_id(name, "og") else t.orgs.c.slug
    return one(tx.conn, select(*columns(t.orgs, Org)).where(by == name), Org)


def orgs_of(tx: Tx, user_id: str) -> list[tuple[Org, str]]:
    statement = (
        select(*columns(t.orgs, Org), t.org_members.c.role)
        .join(t.org_members, t.org_members.c.org_id == t.orgs.c.id)
        .where(t.org_members.c.user_id == user_id)
        .order_by(t.orgs.c.slug)
    )
    return [(Org(row.id, row.slug, row.name, row.created_at), row.role) for row in tx.conn.execute(statement)]


def org_role(tx: Tx, org_id: str, user_id: str) -> str | None:
    statement = select(t.org_members.c.role).where(t.org_members.c.org_id == org_id, t.org_members.c.user_id == user_id)
    return tx.conn.execute(statement).scalar_one_or_none()


def org_members(tx: Tx, org_id: str) -> list[Member]:
    statement = (
        select(literal(""), t.users.c.id, t.users.c.email, t.users.c.name, t.org_members.c.role, t.users.c.kind)
        .join(t.users, t.users.c.id == t.org_members.c.user_id)
        .where(t.org_members.c.org_id == org_id)
        .order_by(t.users.c.email)
    )
    return [Member(*row) for row in tx.conn.execute(statement)]


def org_admins(tx: Tx, org_id: str) -> list[str]:
    """Those who can log in, locked."""
    statement = (
        select(t.org_members.c.user_id)
        .join(t.users, t.users.c.id == t.org_members.c.user_id)
        .where(t.org_members.c.org_id == org_id, t.org_members.c.role == TENANT_ADMIN, t.users.c.disabled_at.is_(None))
    )
    locked = statement.order_by(t.org_members.c.user_id).with_for_update(of=t.org_members)
    return list(tx.conn.execute(locked).scalars())


def leave_org(tx: Tx, org_id: str, user_id: str) -> list[str] | None:
    """Out of the organisation and its projects: answers which those were. None: was in none of it."""
    of_org = select(t.projects.c.id).where(t.projects.c.org_id == org_id)
    left = delete(t.memberships).where(t.memberships.c.user_id == user_id, t.memberships.c.project_id.in_(of_org))
    projects = sorted(tx.conn.execute(left.returning(t.memberships.c.project_id)).scalars())
    out = delete(t.org_members).where(t.org_members.c.org_id == org_id, t.org_members.c.user_id == user_id)
    return projects if tx.conn.execute(out).rowcount or projects else None


def set_org_member(tx: Tx, org_id: str, user_id: str, role: str) -> None:
    statement = upsert(t.org_members).values(org_id=org_id, user_id=user_id, role=role)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["org_id", "user_id"], set_={"role": role}))


def insert_project(tx: Tx, org_id: str, slug: str, name: str) -> Project | None:
    """None when the org has a project of that slug."""
    row: dict[str, Any] = {"id": tx.ids.new("pj"), "org_id": org_id, "slug": slug, "name": name, "created_at": tx.now}
    made = tx.conn.execute(upsert(t.projects).values(**row).on_conflict_do_nothing().returning(t.projects.c.id)).first()
    return Project(**row) if made else None


def set_open_network(tx: Tx, project_id: str, open_network: bool) -> None:
    tx.conn.execute(update(t.projects).where(t.projects.c.id == project_id).values(open_network=open_network))


def project(tx: Tx, project_id: str) -> Project | None:
    return one(tx.conn, select(*columns(t.projects, Project)).where(t.projects.c.id == project_id), Project)


def project_ids(tx: Tx, org_id: str) -> list[str]:
    return list(tx.conn.execute(select(t.projects.c.id).where(t.projects.c.org_id == org_id).order_by("id")).scalars())


def projects_of(tx: Tx, org_id: str) -> list[Project]:
    statement = select(*columns(t.projects, Project)).where(t.projects.c.org_id == org_id)
    return many(tx.conn, statement.order_by(t.projects.c.id), Project)


def visible_projects(tx: Tx, user_id: str) -> list[tuple[Project, str]]:
    """Projects a user can see, with the role there: by membership, or as tenant_admin of the org."""
    rows = tx.remembered.get(user_id) if tx.reads else None
    if rows is None:
        rows = tx.run(VISIBLE.format(who="%(user_id)s"), {"user_id": user_id}).fetchall()
    return [(made(Project, row[:-1]), row[-1]) for row in rows]


# Two ways in, each by an index: with an OR over both, every project of every tenant would be looked at.
VISIBLE = f"""
    SELECT {names(Project)}, CASE WHEN bool_or(admin) THEN 'admin' ELSE max(role) END
    FROM (
        SELECT project_id, role, false AS admin FROM memberships WHERE user_id = {{who}}
        UNION ALL
        SELECT projects.id, NULL, true FROM org_members JOIN projects USING (org_id)
        WHERE org_members.user_id = {{who}} AND org_members.role = 'tenant_admin'
    ) AS way
    JOIN projects ON projects.id = way.project_id
    GROUP BY projects.id ORDER BY slug, id
"""


def members(tx: Tx, project_id: str) -> list[Member]:
    statement = (
        select(
            t.memberships.c.project_id,
            t.memberships.c.user_id,
            t.users.c.email,
            t.users.c.name,
            t.memberships.c.role,
            t.users.c.kind,
        )
        .join(t.users, t.users.c.id == t.memberships.c.user_id)
        .where(t.memberships.c.project_id == project_id)
        .order_by(t.users.c.email)
    )
    return many(tx.conn, statement, Member)


def set_member(tx: Tx, project_id: str, user_id: str, role: str, *, managed: bool = False) -> None:
    """`managed`: the groups that the identity provider names gave it, and may take it away."""
    given = {"role": role, "managed": managed}
    statement = upsert(t.memberships).values(project_id=project_id, user_id=user_id, created_at=tx.now, **given)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["project_id", "user_id"], set_=given))


def remove_member(tx: Tx, project_id: str, user_id: str) -> bool:
    statement = delete(t.memberships).where(
        t.memberships.c.project_id == project_id, t.memberships.c.user_id == user_id
    )
    return tx.conn.execute(statement).rowcount == 1


def member_role(tx: Tx, project_id: str, user_id: str) -> str | None:
    statement = select(t.memberships.c.role).where(
        t.memberships.c.project_id == project_id, t.memberships.c.user_id == user_id
    )
    return tx.conn.execute(statement).scalar_one_or_none()


# Whoever takes them out or disables them waits for us.
# One row for each way in that there is.
# Whoever is admitted, is until we commit. Notes the project and its org for what is asked about them with it.
ADMITTED = f"""
    WITH member AS MATERIALIZED (
        SELECT m.role FROM memberships m JOIN users u ON u.id = m.user_id
        WHERE m.project_id = %(project_id)s AND m.user_id = %(user_id)s AND u.disabled_at IS NULL FOR SHARE
    ), admin AS MATERIALIZED (
        SELECT o.role FROM projects p JOIN org_members o ON o.org_id = p.org_id JOIN users u ON u.id = o.user_id
        WHERE p.id = %(project_id)s AND o.user_id = %(user_id)s AND o.role = '{TENANT_ADMIN}'
            AND u.disabled_at IS NULL FOR SHARE OF o, u
    )
    SELECT {names(Project)}, CASE WHEN EXISTS (TABLE admin) THEN 'admin' ELSE (TABLE member) END,
        {noting("project", "id")}, {noting("org", "org_id")}
    FROM projects WHERE id = %(project_id)s AND (EXISTS (TABLE member) OR EXISTS (TABLE admin))
"""
PROJECT, ORG = noted("project"), noted("org")


def belongs(tx: Tx, project: Project, user_id: str) -> bool:
    """By membership, or as tenant_admin of the org. Who takes them out or disables them waits, and then sees what was
    done."""
    return bool(tx.run(ADMITTED, {"project_id": project.id, "user_id": user_id}).fetchall())


def insert_user(
    tx: Tx,
    email: str,
    name: str,
    password_hash: str | None,
    platform_role: str | None,
    *,
    email_proven: bool = True,
) -> User | None:
    """None when the address is taken."""
    row: dict[str, Any] = {
        "id": tx.ids.new("us"),
        "email": email.lower(),
        "name": name,
        "platform_role": platform_role,
        "created_at": tx.now,
    }
    secret = {"password_hash": password_hash, "email_proven": email_proven}
    statement = upsert(t.users).values(**row, **secret).on_conflict_do_nothing()
    made = tx.conn.execute(statement.returning(t.users.c.id)).first()
    return User(**row, disabled_at=None) if made else None


def is_user_id(text: str) -> bool:
    """Of a person, or of a service account."""
    return is_id(text, "us") or is_id(text, "sa")


def user(tx: Tx, name: str) -> User | None:
    """By id or by address."""
    by = t.users.c.id if is_user_id(name) else t.users.c.email
    wanted = name if is_user_id(name) else name.lower()
    return one(tx.conn, select(*columns(t.users, User)).where(by == wanted), User)


def enabled(tx: Tx, user_id: str, *, lock: bool = False) -> bool:
    """`lock`: who disables them waits, and then sees what was done."""
    statement = select(t.users.c.id).where(t.users.c.id == user_id, t.users.c.disabled_at.is_(None))
    return tx.conn.execute(statement.with_for_update(read=True) if lock else statement).first() is not None


def set_disabled(tx: Tx, user_id: str, at: datetime | None) -> None:
    """Waits for whoever makes a token or a machine for them; who comes later sees it."""
    tx.conn.execute(update(t.users).where(t.users.c.id == user_id).values(disabled_at=at))


def enabled_admins(tx: Tx) -> list[str]:
    """The platform's administrators, locked: two of them do not disable each other at once."""
    statement = select(t.users.c.id).where(t.users.c.platform_role == PLATFORM_ADMIN, t.users.c.disabled_at.is_(None))
    return list(tx.conn.execute(statement.order_by(t.users.c.id).with_for_update(key_share=True)).scalars())


def users(tx: Tx, after: str, limit: int) -> list[User]:
    """By address, from the first one after `after` on."""
    statement = select(*columns(t.users, User)).where(t.users.c.email > after)
    return many(tx.conn, statement.order_by(t.users.c.email).limit(limit), User)


def password_hash(tx: Tx, email: str) -> tuple[User, str | None] | None:
    row = tx.conn.execute(
        select(*columns(t.users, User), t.users.c.password_hash).where(t.users.c.email == email.lower())
    ).one_or_none()
    if row is None:
        return None
    values = dict(row._mapping)
    stored = values.pop("password_hash")
    return User(**values), stored
