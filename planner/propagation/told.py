"""Told: what the log says of ports that were settled by columns, with a label shared or of their own.

Source: design 01, section 6.
"""

from typing import Final

import numpy as np

from planner.plans.records import Refused
from planner.propagation.alike import Alike, refusals
from planner.propagation.portkinds import FIXED
from planner.propagation.solver.classes import UNIT

BY_RANGE: Final = "the range it has to hold"
SHARED: Final = "the label that costs its component least"

Reason = tuple[str, str, tuple[Refused, ...]]
"""(rule, source, labels refused)."""


class Told:
    """Reasons of ports that have their value's type."""

    def __init__(self, alike: Alike | None) -> None:
        self._reasons: dict[int, Reason] = {}
        if alike is None:
            return
        tied = alike.tied
        others = {
            home: tuple(Refused(str(kind), price / UNIT) for kind, price in found)
            for home, found in refusals(alike).items()
        }
        homes = tied.home[tied.at]
        mine = np.flatnonzero((tied.group >= 0) & (alike.chosen[homes] >= 0))
        shares, fixed = alike.shares[tied.group[mine]].tolist(), (tied.code[mine] == FIXED).tolist()
        for n, (port, home) in enumerate(zip(tied.ports[mine].tolist(), homes[mine].tolist(), strict=True)):
            if fixed[n]:
                self._reasons[port] = "fixed_scale", alike.sources[home], ()
            else:
                rule, source = ("shared", SHARED) if shares[n] else ("range", BY_RANGE)
                self._reasons[port] = rule, source, others.get(home, ())

    def of(
        self, port: int, because: tuple[int, ...]
    ) -> tuple[str, str, tuple[int, ...], tuple[Refused, ...]]:
        """Why a port, by its column, has its type: what ends its row of the log."""
        rule, source, refused = self._reasons.get(port, _BY_RANGE)
        return rule, source, because, refused


_BY_RANGE: Final[Reason] = ("range", BY_RANGE, ())
