"""Names of tasks that both a child and its parent know; a child loads nothing else of the server."""

from typing import Final

WEIGHTS: Final = "weights.data"
"""Name of an exported model's weight file, where its weights lie in one."""
HOLD: Final = "hold"
"""The task of a child that holds a plan (`residents`); its further lines are edits."""
QUANTIZE: Final = "quantize"
"""A work of several tasks, which no child does alone."""
