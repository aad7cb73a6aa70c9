"""What every table is made of, and the one row that names this database."""

from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    MetaData,
    Table,
    Text,
    text,
)

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


def to(name: str, nullable: bool = False) -> Column[str]:
    """A row that was read or written in the same transaction, of a table whose rows nobody can delete (migration 0028):
    a foreign key would look for it again, lock it, and have everybody who does so write that down in its row."""
    return Column(name, Text, nullable=nullable)


def one_of(column: str, values: Any, name: str | None = None) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in sorted(values))
    return CheckConstraint(f"{column} IN ({listed})", name=name or f"{column}_known")


# Which of them go together. Refused by a foreign key, not by a CHECK: PostgreSQL reads the text of a CHECK again for
# each statement, and nothing at all is done for a foreign key that is null.
MODE = ("operating_mode", "control_plane_scope", "tenant_boundary_mode")
operating_modes = Table("operating_modes", metadata, *(Column(name, Text, primary_key=True) for name in MODE))


def app_columns(table: str) -> list[Any]:
    """What every event, audit entry, usage record and operation says about the app it belongs to (none: null)."""
    return [
        Column("correlation_id", Text),
        Column("app_instance_id", Text),
        Column("operating_mode", Text),
        Column("control_plane_scope", Text),
        Column("runtime_backend", Text),
        Column("tenant_boundary_mode", Text),
        ForeignKeyConstraint(MODE, [f"operating_modes.{name}" for name in MODE], name=f"fk_{table}_operating_mode"),
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
