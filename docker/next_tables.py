"""A table that no version has, for docker/test.sh: an older program has to refuse it."""

import sqlalchemy
from alembic import op

revision = "9999"
down_revision = "0002"


def upgrade() -> None:
    """Make it."""
    op.create_table("next", sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
