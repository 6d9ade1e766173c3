"""Exact labelling by a mixed-integer program (HiGHS): one variable per class and label it may take.

Limits are counts, never wall time. Source: design 01, section 5.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from planner.ir.qtypes import Uniform
from planner.propagation.components import Edge, Loss, Unit
from planner.propagation.labels import Label, LabelClass, log_units, typed
from planner.propagation.price import Market, loss_price

MILP_VARIABLES: Final = 6_000
CUT_VARIABLES: Final = 200_000  # two labels: mostly a minimum cut, whose linear program has whole solutions
MILP_NODES: Final = 400

Picks = Mapping[int, Mapping[Label | None, int]]


class Found(NamedTuple):
    """A labelling (None: model too large, or none found), a lower bound, and what the bound gave away.

    A price above the bound by no more than `slack` is the least that HiGHS can tell apart.
    """

    labels: dict[int, Label | None] | None
    bound: int
    slack: int = 0


class _Model:
    """A MILP under construction: minimise cost . x with rows low <= A x <= high, 0 <= x <= top."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.whole: list[int] = []
        self.top: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def variable(self, cost: float, *, whole: bool, top: float = 1.0) -> int:
        self.cost.append(cost)
        self.whole.append(int(whole))
        self.top.append(top)
        return len(self.cost) - 1

    def row(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        self.entries += [(len(self.low), column, factor) for column, factor in terms]
        self.low.append(low)
        self.high.append(high)


def solve_exactly(unit: Unit, classes: Sequence[LabelClass], market: Market) -> Found:
    """Minimise the price of a unit over the labels its classes have."""
    model = _Model()
    pick = {c: {label: model.variable(0.0, whole=True) for label in classes[c].labels} for c in unit.classes}
    for variables in pick.values():
        model.row([(x, 1.0) for x in variables.values()], 1.0, 1.0)
    limit = CUT_VARIABLES if all(len(labels) <= 2 for labels in pick.values()) else MILP_VARIABLES
    for edge in unit.edges:
        _edge_rows(model, edge, pick, market)
        if len(model.cost) > limit:
            return Found(None, 0)
    base = 0
    for loss in unit.losses:
        base += _loss_rows(model, loss, pick, market)
        if len(model.cost) > limit:
            return Found(None, 0)
    scale = max(model.cost, default=1.0) or 1.0
    rows, columns, factors = zip(*model.entries, strict=True)
    matrix = csr_array((factors, (rows, columns)), shape=(len(model.low), len(model.cost)))
    answer = milp(
        np.asarray(model.cost) / scale,
        integrality=np.asarray(model.whole),
        bounds=Bounds(0.0, np.asarray(model.top)),
        constraints=LinearConstraint(matrix, np.asarray(model.low), np.asarray(model.high)),
        options={"node_limit": MILP_NODES, "mip_rel_gap": 0.0},
    )
    bound = slack = 0
    if answer.mip_dual_bound is not None and math.isfinite(answer.mip_dual_bound):
        # HiGHS is exact to about 1e-6 of the largest price; the bound gives that much away.
        bound = max(0, math.ceil((answer.mip_dual_bound - 1e-6) * scale) + base)
        slack = math.ceil(2e-6 * scale)
    if answer.x is None:
        return Found(None, bound, slack)
    chosen = {c: max(pick[c], key=lambda label, c=c: answer.x[pick[c][label]]) for c in pick}  # type: ignore[misc]
    return Found(chosen, bound, slack)


def _edge_rows(model: _Model, edge: Edge, pick: Picks, market: Market) -> None:
    """One cost variable per type that uses of this value may want."""
    defined: list[tuple[Uniform | None, int | None]] = [(edge.start, None)]
    if edge.definition is not None:
        group, store = edge.definition
        defined = [(None if lb is None else typed(lb, store), x) for lb, x in pick[group].items()]
    wanted: dict[tuple[Uniform | None, bool, int], list[tuple[int | None, int]]] = {}
    for n, use in enumerate(edge.uses):
        key = (market.is_free(edge, use), n if market.single_consumer else 0)
        if use.group < 0:
            wanted.setdefault((use.goal, *key), []).append((None, use.trips))
            continue
        for label, x in pick[use.group].items():
            kind = None if label is None or use.store is None else typed(label, use.store)
            wanted.setdefault((kind, *key), []).append((x, use.trips))
    for (kind, free, _), users in wanted.items():
        prices = [(market.pair(s, kind, free=free)[0] if s != kind else 0, x) for s, x in defined]
        _rescale_rows(model, edge.elements, prices, users)


def _rescale_rows(
    model: _Model,
    elements: int,
    prices: Sequence[tuple[int, int | None]],
    users: Sequence[tuple[int | None, int]],
) -> None:
    """Y >= trips * (price where it is defined - worst price * (1 - used)), for each user."""
    worst = max(price for price, _ in prices)
    if worst == 0:
        return
    y = model.variable(float(elements), whole=False, top=float(worst * max(trips for _, trips in users)))
    for user, trips in users:
        terms = [(x, -float(price * trips)) for price, x in prices if x is not None and price]
        known = sum(price for price, x in prices if x is None)
        used = [] if user is None else [(user, -float(worst * trips))]
        slack = 0 if user is None else worst
        merged: dict[int, float] = {}
        for x, factor in [*terms, *used]:
            merged[x] = merged.get(x, 0.0) + factor
        model.row([(y, 1.0), *merged.items()], float((known - slack) * trips), np.inf)


def _loss_rows(model: _Model, loss: Loss, pick: Picks, market: Market) -> int:
    """A cost variable per step that the coarsest label upstream may add; returns what is paid anyway."""
    levels = sorted({log_units(label[0]) for c in loss.upstream for label in pick[c] if label is not None})
    base = paid = loss_price(loss, max(0, loss.constant - loss.own), market.costs)
    for level in levels:
        price = loss_price(loss, max(0, max(level, loss.constant) - loss.own), market.costs)
        if price <= paid:
            continue
        z = model.variable(float(price - paid), whole=False)
        for c in loss.upstream:
            coarse = [
                (x, 1.0) for label, x in pick[c].items() if label is not None and log_units(label[0]) >= level
            ]
            if coarse:
                model.row([*coarse, (z, -1.0)], -np.inf, 0.0)
        paid = price
    return base
