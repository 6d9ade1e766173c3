"""The version of the planner, and the revision of how it plans: both are part of every plan's content key."""

from typing import Final

VERSION: Final = "0.1.0"
PLANNING: Final = 15
"""Raised by every change after which a request may get another plan (`tests/plans/test_revision.py`)."""
MADE_BY: Final = f"{VERSION}, planning {PLANNING}"
"""What makes plans; what is kept of another maker is read, and not given as the answer of today."""
MAKERS: Final = tuple(f"{VERSION}, planning {revision}" for revision in range(PLANNING, 0, -1))
"""Planners whose plans this one checks and exports, the latest first."""
