"""The script that alembic runs: migrations in the transaction that `open_database` began."""

from alembic import context

from api.storage.database import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
