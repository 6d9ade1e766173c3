"""The script that alembic runs: migrations, in the transaction that `open_database` began."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
