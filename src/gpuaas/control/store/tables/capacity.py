"""How much of each node is free, counted: what a launch chooses its node by."""

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, text

from gpuaas.control.store.tables.base import metadata

# One row for each GPU model of a node. Never the truth, always equal to it: recounted from slots and claims in every
# transaction that changes them, under the node's row lock (`store/capacity.py`).
capacity = Table(
    "capacity",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("gpu_model", Text, primary_key=True),
    Column("pool", Text, nullable=False),  # the org whose own node it is; empty: everybody's
    Column("open", Boolean, nullable=False),  # something may be placed there right now
    Column("slots", Integer, nullable=False),  # of the node, whatever their model and state
    Column("free_slots", Integer, nullable=False),
    Column("free_gpus", Integer, nullable=False),
    Column("together", Integer, nullable=False),  # free GPUs of the NUMA domain that has most of them
    # The same for GPUs that are linked directly. Servers of the version before do not count it: the plan looks again.
    Column("linked", Integer, nullable=False, server_default=text("0")),
    CheckConstraint("free_slots BETWEEN 0 AND slots AND together BETWEEN 0 AND free_gpus", name="counts"),
    Index(
        "ix_capacity_packing",
        "gpu_model",
        "pool",
        "free_gpus",
        "linked",
        "together",
        "node_id",
        postgresql_where=text("open AND free_slots > 0"),
    ),
)
