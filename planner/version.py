"""The version of the planner, part of every plan's content key."""

from typing import Final

VERSION: Final = "0.1.0"
