"""Jobs belong to tenants; those of before to the default one."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0002"
down_revision: Final = "0001"


def upgrade() -> None:
    """Add the column and the orders in which jobs are listed and taken."""
    op.add_column("jobs", sa.Column("tenant", sa.String(40), nullable=False, server_default="default"))
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "created", "id"])
    op.create_index("jobs_by_principal", "jobs", ["state", "principal"])


def downgrade() -> None:
    """Take them away; jobs of all tenants are then seen by all."""
    for name in ("jobs_by_principal", "jobs_by_tenant"):
        op.drop_index(name, "jobs")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("tenant")
