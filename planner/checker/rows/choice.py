"""Re-verify the choice of a row independently: no other row that fits a kernel is to be preferred.

Those that hold what facts say of ranges, then most pins met, then enough dB at readers, then first in the
file, less the rows that the log says could not be kept: of those it is computed again, at the types that the
log names, that they cannot. Needs the target and the model's numbers. Source: docs/specification.md, section
4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.checker.kernel_ports import Served, refuse
from planner.checker.rows.asked import asked_of, has_asked
from planner.checker.rows.merit import Merit, holds_ranges, merit_of
from planner.checker.rows.mirrors import mirrors
from planner.checker.rows.reading import gives_floats, read_row
from planner.checker.rows.too_little import NOTHING_HOLDS, left_at_readers
from planner.target.borders import rows_for
from planner.target.records import Costs, Row, Target


def check_choice(
    served: Served,
    target: Target,
    binding: frozenset[str],
    left: Mapping[str, str],
    short: Sequence[tuple[str, str]] = (),
    *,
    mirrored: str = "",
) -> None:
    """No other row of the target that fits holds more, meets more pins, or as many and stands earlier.

    Rows with float results are judged among themselves, and the others too: which sort serves depends on the
    readers (`figures.float_results`).

    Args:
      binding: values with facts that a port can break.
      left: why rows could not be kept, by key, as the log says.
      short: rows that hold too little, by key, and why, as the log says.
      mirrored: key of the row that, as the log says, would come first and differs in signs alone; whether
        the kernel is right to have the other one is judged by `figures.signs`.
    """
    sort = gives_floats(served.row)
    rows = [row for row in rows_for(target, served.kernel.kernel) if gives_floats(row) == sort]
    free = _is_free(served, binding)
    # Without facts no row meets a pin, so the first that fits wins, and the first of all needs no search.
    costs = target.costs
    is_first = bool(rows) and rows[0] == served.row and free and holds_ranges(served, costs.max_clip)
    if not rows or (is_first and not short and left_at_readers(served, costs.wanted_db)[0] == math.inf):
        return
    fit = [(merit, row) for row in rows if row.key not in left and (merit := merit_of(served, row, costs))]
    if not fit:
        return
    # The first of equal ones: the order of the file breaks ties.
    best = max(fit, key=lambda entry: entry[0])
    own = next((merit for merit, row in fit if row == served.row), None)
    is_mirror = best[1].key == mirrored and own == best[0] and mirrors(served, best[1], served.row)
    if best[1] != served.row and not is_mirror:
        refuse(
            served.kernel.name,
            f"is served by {served.row.source}, {best[1].source} {_why(served, best[0], costs)}; "
            f"accepted: {best[1].key}",
            served.row,
        )
    _check_short(served, fit, best, costs, short)
    if best[0][-1] < math.inf and costs.wanted_float and free and target.on_no_kernel == "float":
        refuse(
            served.kernel.name, f"is served by {served.row.source}, and no row holds enough; accepted: float"
        )


def _is_free(served: Served, binding: frozenset[str]) -> bool:
    """Whether nothing but ranges has a say in a kernel's row."""
    region = served.region
    plain = not region.input_facts and not region.output_facts
    return (
        plain
        and asked_of(served.graph, region) is None
        and binding.isdisjoint(port.value for port in served.ports)
    )


def _why(served: Served, merit: Merit, costs: Costs) -> str:
    """Why a row is to be preferred to the one that serves a kernel."""
    asked = asked_of(served.graph, served.region)
    is_asked, _, met, as_they_are, db = merit
    if asked is not None and is_asked and not has_asked(served, asked.wanted):
        return f"fits and is {asked.wanted}, as {asked.key!r} asks"
    if not holds_ranges(served, costs.max_clip):
        return "fits and holds its ranges"
    least, told = left_at_readers(served, costs.wanted_db)
    own = merit_of(served, served.row, costs)
    if own is not None and own[:-1] == merit[:-1] and least < db:
        return f"fits and holds more: {told}"
    if own is not None and own[:3] == merit[:3] and own[3] < as_they_are:
        return f"fits and takes {as_they_are} pins as they are"
    return f"fits and meets {met} pins" if met else "fits and comes first"


def _check_short(
    served: Served,
    fit: Sequence[tuple[Merit, Row]],
    best: tuple[Merit, Row],
    costs: Costs,
    told: Sequence[tuple[str, str]],
) -> None:
    """The log tells of the rows that would come before the one that serves, held they enough."""
    at = [row for _, row in fit].index(best[1])
    wanted: list[tuple[str, str]] = []
    for k, (merit, row) in enumerate(fit):
        reading = read_row(row, served.region)
        comes_before = merit[:-1] > best[0][:-1] or (merit[:-1] == best[0][:-1] and k <= at)
        if merit[-1] < math.inf and comes_before and not isinstance(reading, str):
            why = left_at_readers(replace(served, reading=reading), costs.wanted_db)[1]
            wanted.append((row.key, why))
    if [*told] != wanted:
        shown = "; ".join(f"{key}: {why}" for key, why in wanted) or "none"
        refuse(
            served.kernel.name,
            f"is said to have {len(told)} rows that hold too little, which is not so; accepted: {shown}",
            served.row,
        )


def check_float_for_little(
    served: Served, target: Target, binding: frozenset[str], left: Mapping[str, str]
) -> None:
    """A kernel that runs in float as no row holds enough: none does, nothing else has a say, and it says so.

    Args:
      served: the kernel beside any row.
    """
    costs, kernel = target.costs, served.kernel
    rows = [row for row in rows_for(target, kernel.kernel) if row.key not in left]
    fit = [(merit, row) for row in rows if (merit := merit_of(served, row, costs))]
    stored = [entry for entry in fit if not gives_floats(entry[1])] or fit
    best = max(stored, key=lambda entry: entry[0], default=None)
    lawful = costs.wanted_float and _is_free(served, binding) and target.on_no_kernel == "float"
    if best is None or best[0][-1] == math.inf or not lawful:
        accepted = "a row" if best is None else best[1].key
        refuse(kernel.name, f"runs in float ({kernel.reason}), which is not so; accepted: {accepted}")
    whys = []
    for _, row in fit:
        reading = read_row(row, served.region)
        if not isinstance(reading, str):
            db, why = left_at_readers(replace(served, reading=reading), costs.wanted_db)
            whys += [f"{row.source}: {why}"] if db < math.inf else []
    reason = NOTHING_HOLDS + "; ".join(whys)
    if kernel.reason != reason:
        refuse(kernel.name, f"runs in float ({kernel.reason}); accepted: {reason!r}")


def check_none_asked(served: Served, target: Target) -> None:
    """No row of a kernel that runs in float has what was asked of it.

    Args:
      served: the kernel beside any row.
    """
    for row in rows_for(target, served.kernel.kernel):
        merit = merit_of(served, row, target.costs)
        if merit is not None and merit[0]:
            reason = served.kernel.reason
            refuse(served.kernel.name, f"runs in float ({reason}), {row.source} is asked for; accepted: it")
