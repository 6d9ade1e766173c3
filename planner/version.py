"""The version of the planner, and the revision of how it plans: both are part of every plan's content key."""

from collections.abc import Iterator, Mapping
from typing import Final

VERSION: Final = "0.1.0"
PLANNING: Final = 21
"""Raised by every change after which a request may get another plan (`tests/plans/test_revision.py`)."""
WORDS: Final = 2
"""Raised where only the words of warnings change: `check` compares them word for word in plans of the same
planning and words. No part of a key: stored plans, measurements and answers of other words stay of use."""
MADE_BY: Final = f"{VERSION}, planning {PLANNING}"
"""The maker of new plans; stored plans of another maker are read, but not returned as today's answer."""
EARLIER: Final[Mapping[str, int]] = {}
"""The last revision of planning of each version before this one, the latest first; a release adds its own."""


def makers(version: str, planning: int, earlier: Mapping[str, int]) -> Iterator[str]:
    """Name the planners of a version up to a revision, then those of earlier versions, the latest first."""
    for name, last in ((version, planning), *earlier.items()):
        yield from (f"{name}, planning {revision}" for revision in range(last, 0, -1))


MAKERS: Final = tuple(makers(VERSION, PLANNING, EARLIER))
"""Planners whose plans this one checks and exports, the latest first."""
