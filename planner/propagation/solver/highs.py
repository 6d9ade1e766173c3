"""HiGHS: minimize a linear function on the unit box; the only place that knows the solver.

Not here: what columns and rows mean (`linear_program`). One thread and a fixed seed; limits are counts, never
wall time, so that every machine gets the same answer.
Source: Huangfu and Hall, "Parallelizing the dual revised simplex method" (2018); highs.dev.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import highspy
import numpy as np
from numpy.typing import NDArray

FEASIBLE: Final = int(highspy.SolutionStatus.kSolutionStatusFeasible)
OPTIONS: Final[dict[str, bool | int | float]] = {
    "output_flag": False,
    "threads": 1,
    "mip_rel_gap": 0.0,
    # Strong branching took two thirds of the time, and found nothing better.
    "mip_pscost_minreliable": 0,
}
MANY: Final = (1 << 31) - 1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Numbers = TypeVar("_Numbers", Floats, Ints)


class Rows(NamedTuple):
    """Rows of a sparse matrix: row i is columns[starts[i] : starts[i + 1]], their factors, a right side."""

    starts: Ints
    columns: Ints
    factors: Ints
    right: Ints

    def weighted(self, weights: _Numbers, width: int) -> _Numbers:
        """The sum of all rows, each times its weight: of shape (width,)."""
        total = np.zeros(width, weights.dtype)
        np.add.at(total, self.columns, self.factors * np.repeat(weights, np.diff(self.starts)))
        return total

    def taken(self, numbers: Ints) -> "Rows":
        """Some of the rows, by number."""
        lengths = np.diff(self.starts)[numbers]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(starts[-1]) + np.repeat(self.starts[numbers] - starts[:-1], lengths)
        return Rows(starts, self.columns[at], self.factors[at], self.right[numbers])


class Answer(NamedTuple):
    """The answer of HiGHS.

    Attributes:
      values: a feasible point, shape (columns,); None where none was found.
      duals: of the rows, shape (rows,), those of `at_least` rows not negative; no meaning with `branching`.
      bound: HiGHS's own lower bound; only with `branching`.
      iterations: of the simplex method.
    """

    values: Floats | None
    duals: Floats
    bound: float
    iterations: int


def rows_of(parts: Sequence[tuple[int, list[int], list[int]]]) -> Rows:
    """Rows from (right side, columns, factors)."""
    return Rows(
        np.cumsum([0, *(len(columns) for _, columns, _ in parts)]),
        np.array([x for _, own, _ in parts for x in own], np.int64),
        np.array([f for _, _, own in parts for f in own], np.int64),
        np.array([right for right, _, _ in parts], np.int64),
    )


class Branching(NamedTuple):
    """Settings of branch and bound.

    It starts from a point, so there is something to compare with, and rewriting the model first costs more
    than it saves.

    Attributes:
      whole: columns that must be 0 or 1.
      start: a feasible point.
      nodes: to be looked at, at most.
    """

    whole: Sequence[int]
    start: Sequence[int]
    nodes: int


def least(
    cost: Floats, at_least: Rows, equal: Rows, branching: Branching | None = None, *, iterations: int = MANY
) -> Answer:
    """Minimise cost . x where 0 <= x <= 1, `at_least` . x >= its right side and `equal` . x = its own.

    Args:
      cost: shape (columns,).
      branching: None for the relaxation.
      iterations: of the simplex method, at most; only for the relaxation.

    Returns:
      The answer; its duals are those of `at_least`, then those of `equal`.
    """
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(cost), len(at_least.right) + len(equal.right)
    program.col_cost_ = cost
    program.col_lower_, program.col_upper_ = np.zeros(len(cost)), np.ones(len(cost))
    program.row_lower_ = np.concatenate([at_least.right, equal.right])
    program.row_upper_ = np.concatenate([np.full(len(at_least.right), np.inf), equal.right])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.concatenate([at_least.starts, at_least.starts[-1] + equal.starts[1:]])
    # One copy of the rows in HiGHS's own layout; a call for each row would take longer than the solving.
    program.a_matrix_.index_ = np.concatenate([at_least.columns, equal.columns])
    program.a_matrix_.value_ = np.concatenate([at_least.factors, equal.factors])
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in OPTIONS.items():
        highs.setOptionValue(name, value)
    if branching is None:
        highs.setOptionValue("simplex_iteration_limit", iterations)
        highs.passModel(program)
    else:
        _branch(highs, program, branching)
    highs.run()
    solution, info = highs.getSolution(), highs.getInfo()
    found = info.primal_solution_status == FEASIBLE
    values = np.array(solution.col_value) if found else None
    return Answer(values, np.array(solution.row_dual), info.mip_dual_bound, info.simplex_iteration_count)


def _branch(highs: highspy.Highs, program: highspy.HighsLp, branching: Branching) -> None:
    """Hand over a program with whole columns, and the point to start from."""
    kinds = [highspy.HighsVarType.kContinuous] * program.num_col_
    for column in branching.whole:
        kinds[column] = highspy.HighsVarType.kInteger
    program.integrality_ = kinds
    highs.setOptionValue("presolve", "off")
    highs.setOptionValue("mip_max_nodes", branching.nodes)
    highs.passModel(program)
    known = highspy.HighsSolution()
    known.col_value = [float(x) for x in branching.start]
    highs.setSolution(known)
