"""Quotas of projects and organisations."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Table, Text

from gpuaas.control.store.tables.base import at, metadata, one_of, ref
from gpuaas.model import quota

# What is used is not written here: it is counted under the lock of these rows, by whoever wants more.
quotas = Table(
    "quotas",
    metadata,
    Column("owner_id", Text, primary_key=True),  # a project's id or an org's
    Column("kind", Text, primary_key=True),
    Column("most", BigInteger, nullable=False),
    ref("org_id", "orgs"),
    at("changed_at"),
    one_of("kind", quota.KINDS),
    CheckConstraint("most >= 0", name="not_negative"),
)
