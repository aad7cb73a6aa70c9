"""What every table is made of, and the one row that names this database."""

from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Column, DateTime, ForeignKey, MetaData, Table, Text, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def id_() -> Column[str]:
    return Column("id", Text, primary_key=True)


def at(name: str, nullable: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def ref(name: str, target: str, nullable: bool = False) -> Column[str]:
    return Column(name, Text, ForeignKey(f"{target}.id"), nullable=nullable)


def one_of(column: str, values: Any, name: str | None = None) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in sorted(values))
    return CheckConstraint(f"{column} IN ({listed})", name=name or f"{column}_known")


def app_columns() -> list[Any]:
    """What every event, audit entry, usage record and operation says about the app it belongs to (none: null)."""
    return [
        Column("correlation_id", Text),
        Column("app_instance_id", Text),
        Column("operating_mode", Text),
        Column("control_plane_scope", Text),
        Column("runtime_backend", Text),
        Column("tenant_boundary_mode", Text),
        CheckConstraint(
            "operating_mode IS NULL OR (operating_mode, control_plane_scope, tenant_boundary_mode) IN ("
            "('tenant_dedicated', 'project', 'tenant_isolated'), ('tenant_dedicated', 'tenant', 'tenant_isolated'), "
            "('platform_managed', 'platform', 'shared_service'))",
            name="operating_mode_combination",
        ),
        CheckConstraint(
            "runtime_backend IS NULL OR runtime_backend IN ('k8s', 'slurm', 'ray', 'bare_metal')",
            name="runtime_backend_known",
        ),
    ]


# One row. `fingerprint` names the physical database; when it differs, this is a copy or a restored backup.
store = Table(
    "store",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("id", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    CheckConstraint("single", name="one_row"),
)
