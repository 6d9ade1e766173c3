"""Names of tasks that both a child and what starts it know; a child loads nothing else of the server."""

from typing import Final

HOLD: Final = "hold"
"""The task of a child that holds a plan (`residents`); its further lines are edits."""
