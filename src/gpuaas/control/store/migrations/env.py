"""Alembic's entry point: always online, always on the connection that migrate.upgrade() holds its lock with."""

from alembic import context

from gpuaas.control.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
