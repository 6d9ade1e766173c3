"""Jobs and their events."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0001"
down_revision: Final = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("key", sa.String(200), unique=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("problem", sa.JSON),
        sa.Column("progress", sa.JSON),
        sa.Column("principal", sa.String(80), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
        sa.Column("events", sa.Integer, nullable=False),
        sa.Column("cancelling", sa.Boolean, nullable=False),
        sa.Column("owner", sa.String(80)),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("due", sa.Float(53), nullable=False),
        sa.Column("started", sa.Float(53)),
        sa.Column("finished", sa.Float(53)),
        sa.Column("heartbeat", sa.Float(53)),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "due"])
    op.create_index("jobs_by_age", "jobs", ["created", "id"])
    op.create_table(
        "events",
        sa.Column("job", sa.String(32), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("events", "jobs"):
        op.drop_table(name)
