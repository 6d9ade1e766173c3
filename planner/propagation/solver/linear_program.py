"""The price as a linear program over labels (HiGHS): a proven lower bound, and labellings near it.

One variable per class and label; per value and required type, what a rescale to it adds; per consuming use,
the steps of its loss. All factors are 0, 1 and -1 and all costs whole, so the dual solution, rounded, proves
a bound in whole numbers whatever the solver's tolerances. Limits are counts, never wall time.
Source: docs/specification.md, section 5; weak duality.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from planner.ir.types.qtypes import Storage, Uniform
from planner.plans.rescales import SAME_SCALE
from planner.propagation.solver.classes import Labels, Offered
from planner.propagation.solver.components import Edge, Unit
from planner.propagation.solver.highs import Branching, Floats, Ints, Rows, least, rows_of
from planner.propagation.solver.price import CostModel, loss_price
from planner.propagation.solver.ways import Loss, Ways, level_of
from planner.target.ports.labels import typed

RELAXED_ROWS, RELAXED_ROWS_OF_A_CLASS = 30_000, 100
"""Rows of a relaxation, whichever allows more: its time grows faster than they do, and where each class may
take the label of any other, they grow with the square of the classes."""
ITERATIONS: Final = 5_000
"""Of the simplex method, that any relaxation may take."""
EASY: Final = 0.25
HARD: Final = 0.5
"""Iterations for each column: of one that is easy, of one that is still worth it. The more of them one takes,
the longer each is, up to twenty times; how long nothing but trying tells."""
BLOCK: Final = 400
"""Classes of a block, at most: the time of a program grows faster than it does."""
SWEEPS: Final = 2
"""Times that all blocks are solved, at most."""
MILP_VARIABLES: Final = 3_000
"""Columns of branch and bound: cuts at its root alone take half a minute for 7,000."""
MILP_NODES: Final = 100
DUAL_BITS: Final = 12
WHOLE_BITS: Final = 61
SUPPORT: Final = 1e-7


class Relaxed(NamedTuple):
    """The result of the linear program.

    Attributes:
      bound: no labelling costs less.
      nearest: each class's label with the largest share.
      support: each class's labels with any share.
      is_easy: whether it was solved in few iterations.
    """

    bound: int
    nearest: Labels
    support: Offered
    is_easy: bool


@dataclass(slots=True)
class _Model:
    """Minimise base + cost . x where 0 <= x <= 1, `rows` . x >= their right side, `equal` rows = theirs.

    A row says how large its first column has to be; no row before it reads that column.
    """

    cost: list[int] = field(default_factory=list)
    base: int = 0
    rows: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    equal: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    picks: dict[int, list[int]] = field(default_factory=dict)
    floors: dict[int, int] = field(default_factory=dict)
    coarser: dict[int, dict[int, int]] = field(default_factory=dict)

    def least_price(self, cost: int) -> int:
        """The least price there is if columns cost at least this: what they cost is whole steps."""
        step = math.gcd(*self.cost) or 1
        return self.base - (-cost // step) * step

    def variable(self, cost: int) -> int:
        self.cost.append(cost)
        return len(self.cost) - 1

    def at_least(self, right: int, plus: Sequence[int], minus: Sequence[int]) -> None:
        """Sum of `plus` columns less the `minus` ones is at least `right`."""
        self.rows.append((right, [*plus, *minus], [1] * len(plus) + [-1] * len(minus)))


class _Sources(NamedTuple):
    """The possible starts of an edge: kinds with their columns (None: always), by scale; float last.

    `apart`: prices of changes to quite another scale, by the required storage, and whether it may be.
    """

    kinds: Sequence[Uniform | None]
    columns: Sequence[int | None]
    scales: Sequence[float]
    apart: dict[tuple[Storage | None, bool], int]


class _Step(NamedTuple):
    """One step of a rescale's price, and the sources that do without it (or, if fewer, that do not)."""

    price: int
    columns: list[int | None]
    spared: bool


def relax(unit: Unit, offered: Offered, cost_model: CostModel, hard: float) -> Relaxed | None:
    """Solve the relaxation; None where the model is too large or too hard, or its numbers are too large.

    Args:
      hard: iterations for each column that it is worth at most.
    """
    # Picks may be shares here: the least price over shares is at most that over labels.
    limit = max(RELAXED_ROWS, RELAXED_ROWS_OF_A_CLASS * len(unit.classes))
    model = _model(unit, offered, cost_model, limit)
    if model is None:
        return None
    cost = np.array(model.cost, np.float64)
    # Costs reach 1e9 and HiGHS works to about 1e-7: scaled to 1 its tolerances mean something.
    scale = float(cost.max(initial=1.0)) or 1.0
    rows, links = rows_of(model.rows), rows_of(model.equal + _simplex(model))
    most = max(ITERATIONS, round(hard * len(cost)))
    answer = least(cost / scale, rows, links, iterations=most)
    if answer.values is None:
        return None
    bound = _proven(model, rows, rows_of(model.equal), answer.duals * scale)
    is_easy = answer.iterations <= max(ITERATIONS, EASY * len(cost))
    return None if bound is None else _relaxed(model, offered, answer.values, bound, is_easy=is_easy)


def relax_in_blocks(unit: Unit, offered: Offered, cost_model: CostModel) -> Iterator[Relaxed]:
    """Solve the relaxation block by block, each at what the others leave of the costs; again, cut elsewhere.

    A block has the rows whose last class, in the unit's order, is in one run of classes. Its multipliers take
    a part of the cost of each column, which other blocks no longer have: so the bounds of all add up, and no
    block makes the sum less. Labels that have a share in a block's answer have one here; shares of blocks
    need not agree.
    Source: block-coordinate ascent on the dual.

    Yields:
      what is known after each sweep; nothing where the model, or its numbers, are too large.
    """
    model = _model(unit, offered, cost_model, RELAXED_ROWS_OF_A_CLASS * len(unit.classes))
    if model is None:
        return
    left = np.array(model.cost, np.float64)
    scale = float(left.max(initial=1.0)) or 1.0
    left /= scale
    rows, links, equal = rows_of(model.rows), rows_of(model.equal + _simplex(model)), rows_of(model.equal)
    home, last = _homes(model)
    link_home = home[links.columns[links.starts[:-1]]]
    count = -(-len(model.picks) // BLOCK)
    weights, link_weights = np.zeros(len(rows.right)), np.zeros(len(links.right))
    for sweep in range(SWEEPS):
        shares = np.zeros(len(left))
        block = (2 * last * count // len(model.picks) + sweep % 2) // 2
        for number in range(block.max() + 1):
            mine = np.flatnonzero(block == number)
            own = rows.taken(mine)
            linked = np.flatnonzero(np.isin(link_home, home[own.columns]))
            around = links.taken(linked)
            columns = np.unique(np.concatenate([own.columns, around.columns]))
            own, around = (
                part._replace(columns=np.searchsorted(columns, part.columns)) for part in (own, around)
            )
            free = left[columns] + own.weighted(weights[mine], len(columns))
            answer = least(free, own, around, iterations=max(ITERATIONS, round(HARD * len(columns))))
            if answer.values is None:
                continue
            weights[mine] = np.maximum(answer.duals[: len(mine)], 0.0)
            more = answer.duals[len(mine) :]
            link_weights[linked] += more
            free -= own.weighted(weights[mine], len(columns))
            left[columns] = free - around.weighted(more, len(columns))
            shares[columns] = np.maximum(shares[columns], answer.values)
        bound = _proven(model, rows, equal, np.concatenate([weights, link_weights]) * scale)
        if bound is None:
            return
        yield _relaxed(model, offered, shares, bound, is_easy=True)


def _homes(model: _Model) -> tuple[Ints, Ints]:
    """Of each column the class that it is of, by place, or -1; of each row the last class it bears on."""
    last = [-1] * len(model.cost)
    for place, (c, own) in enumerate(model.picks.items()):
        for column in (*own, *model.coarser.get(c, {}).values()):
            last[column] = place
    home = np.array(last)
    found = []
    for _, (first, *others), _ in model.rows:
        # A row says how large its first column has to be, so that column is as late as any of the others.
        at = max((last[column] for column in others), default=0)
        last[first] = max(last[first], at)
        found.append(max(0, at))
    return home, np.array(found)


def _relaxed(model: _Model, offered: Offered, values: Floats, bound: int, *, is_easy: bool) -> Relaxed:
    shares = {c: values[columns].tolist() for c, columns in model.picks.items()}
    nearest = {c: offered[c][max(range(len(own)), key=own.__getitem__)] for c, own in shares.items()}
    support = {
        c: [label for label, share in zip(offered[c], own, strict=True) if share > SUPPORT]
        for c, own in shares.items()
    }
    return Relaxed(bound, nearest, support, is_easy)


def solve_exactly(
    unit: Unit, offered: Offered, cost_model: CostModel, known: Labels
) -> tuple[Labels | None, int]:
    """A labelling found by branch and bound, and a lower bound; (None, 0) where the model is too large.

    HiGHS decides in floats, to about 1e-6 of the largest price; the bound gives that much away.

    Args:
      known: a labelling to start from.
    """
    model = _model(unit, offered, cost_model, 2 * MILP_VARIABLES)
    if model is None or len(model.cost) > MILP_VARIABLES:
        return None, 0
    cost = np.array(model.cost, np.float64)
    scale = float(cost.max(initial=1.0)) or 1.0
    whole = [x for columns in model.picks.values() for x in columns]
    links = rows_of(model.equal + _simplex(model))
    start = _point(model, offered, known)
    answer = least(cost / scale, rows_of(model.rows), links, Branching(whole, start, MILP_NODES))
    bound = 0
    if math.isfinite(answer.bound):
        bound = max(0, model.least_price(math.ceil((answer.bound - 1e-6) * scale)))
    if answer.values is None:
        return None, bound
    return {c: offered[c][int(answer.values[own].argmax())] for c, own in model.picks.items()}, bound


def _point(model: _Model, offered: Offered, labels: Labels) -> list[int]:
    """The columns of a labelling, each that is not picked the least that the rows allow."""
    # Rows say how large their first column has to be, and no row before reads it: one pass fills in all.
    point = [0] * len(model.cost)
    for c, own in model.picks.items():
        point[own[offered[c].index(labels[c])]] = 1
    for right, (first, *others), (_, *factors) in itertools.chain(model.equal, model.rows):
        allowed = right - sum(factor * point[x] for x, factor in zip(others, factors, strict=True))
        point[first] = max(point[first], allowed)
    return point


def _simplex(model: _Model) -> list[tuple[int, list[int], list[int]]]:
    return [(1, own, [1] * len(own)) for own in model.picks.values()]


def _proven(model: _Model, rows: Rows, links: Rows, duals: Floats) -> int | None:
    """A lower bound by weak duality, in whole numbers.

    Any multipliers prove a bound, if those of inequalities are not negative: the rows' right sides weighted,
    plus the least that the columns can cost at what the multipliers leave of their costs.
    """
    height = len(rows.right)
    # Any multipliers prove a bound, right or wrong: the solver's floats only decide how good it is.
    duals = duals[: height + len(links.right)]
    most = sum(model.cost) + float(np.abs(duals).sum())
    bits = min(DUAL_BITS, WHOLE_BITS - math.ceil(most + 1).bit_length())
    if bits < 0:
        return None
    # Rounded to whole numbers times 2^bits, all that follows is exact integer arithmetic.
    weights = np.rint(np.maximum(duals[:height], 0.0) * (1 << bits)).astype(np.int64)
    signed = np.rint(duals[height:] * (1 << bits)).astype(np.int64)
    left = np.array(model.cost, np.int64) << bits
    left -= rows.weighted(weights, len(left)) + links.weighted(signed, len(left))
    free = np.ones(len(left), bool)
    total = int(rows.right @ weights)
    # Of the columns of one class exactly one is 1, so the cheapest of them bounds what the class adds.
    for own in model.picks.values():
        free[own] = False
        total += int(left[own].min())
    # Any other column is between 0 and 1: it adds its cost where that is negative, else nothing.
    total += int(np.minimum(left[free], 0).sum())
    return model.least_price(-(-total >> bits))


def _model(unit: Unit, offered: Offered, cost_model: CostModel, limit: int) -> _Model | None:
    model = _Model()
    for c in unit.classes:
        model.picks[c] = [model.variable(0) for _ in offered[c]]
    for edge in unit.edges:
        _add_edge(model, edge, offered, cost_model)
        if len(model.rows) > limit:
            return None
    for number in unit.ways:
        _add_way(model, number, unit.ways, offered)
    for loss in unit.losses:
        _add_loss(model, loss, offered, cost_model)
        if len(model.rows) > limit:
            return None
    return model


def _add_edge(model: _Model, edge: Edge, offered: Offered, cost_model: CostModel) -> None:
    """A variable for each type that uses of this value may want, and step of its price and trip count."""
    sources = _sources(model, edge, offered)
    wanted: dict[tuple[Uniform | None, bool, int], list[tuple[int | None, int]]] = {}
    for n, use in enumerate(edge.uses):
        key = (cost_model.is_free(edge, use), n if cost_model.single_consumer else 0)
        if use.group < 0:
            wanted.setdefault((use.goal, *key), []).append((None, use.trips))
            continue
        for label, x in zip(offered[use.group], model.picks[use.group], strict=True):
            kind = None if label is None or use.store is None else typed(label, use.store)
            wanted.setdefault((kind, *key), []).append((x, use.trips))
    # Uses that want one type share one rescale, so it is a variable of the edge and not of the use.
    for (kind, free, _), users in wanted.items():
        trips = sorted({times for _, times in users})
        for step in _steps(sources, kind, cost_model, free=free):
            for fewer, times in zip([0, *trips], trips, strict=False):
                readers = [x for x, most in users if most >= times]
                # A rescale is paid as often as the reader with the most trips asks: each further trip count
                # is a step.
                price = step.price * (times - fewer) * edge.elements
                _add_rescale(model, step._replace(price=price), readers)


def _sources(model: _Model, edge: Edge, offered: Offered) -> _Sources:
    if edge.definition is None:
        return _Sources([edge.start], [None], [], {})
    group, store = edge.definition
    labels = offered[group]
    kinds = [None if label is None else typed(label, store) for label in labels]
    return _Sources(kinds, model.picks[group], [label[0] for label in labels if label is not None], {})


def _steps(sources: _Sources, wanted: Uniform | None, cost_model: CostModel, *, free: bool) -> list[_Step]:
    """The price of one rescale as steps: each is paid unless one of its sources is taken.

    Sources of quite another scale all cost the same, so only one of them is asked.
    """
    kinds, columns, scales, apart = sources
    low, high = _near(scales, wanted, cost_model)
    told = [*range(low, high), *range(len(scales), len(kinds))]
    prices = {i: 0 if kinds[i] == wanted else cost_model.pair(kinds[i], wanted, free=free)[0] for i in told}
    others = next((i for i in (0, len(scales) - 1) if scales and i not in prices), None)
    far = None
    if others is not None:
        key = None if wanted is None else wanted.storage, free
        if key not in apart:
            apart[key] = cost_model.pair(kinds[others], wanted, free=free)[0]
        far = apart[key]
    steps, paid = [], 0
    for price in sorted({*prices.values(), *([] if far is None else [far])} - {0}):
        spared = far is None or far >= price
        those = [columns[i] for i in prices if (prices[i] < price) == spared]
        steps.append(_Step(price - paid, those, spared))
        paid = price
    return steps


def _near(scales: Sequence[float], wanted: Uniform | None, cost_model: CostModel) -> tuple[int, int]:
    """Of ascending scales those that may count as the required one: from, and up to but not."""
    if wanted is None or not scales:
        return 0, 0
    if cost_model.costs.zero_point > cost_model.costs.requantize:
        return 0, len(scales)
    if not wanted.is_per_tensor:
        return 0, 0
    scale = wanted.scales[0]
    return bisect_left(scales, scale * (1 - 2 * SAME_SCALE)), bisect_right(
        scales, scale * (1 + 2 * SAME_SCALE)
    )


def _add_rescale(model: _Model, step: _Step, readers: Sequence[int | None]) -> None:
    """`added >= reader - sum of spared`, or `added >= reader + sum of charged - 1`."""
    # A source without a column is there in every labelling.
    certain = None in step.columns
    if certain and step.spared:
        return
    columns = [x for x in step.columns if x is not None]
    added = model.variable(step.price)
    for reader in dict.fromkeys(readers):
        right = int(reader is None) - int(not step.spared and not certain)
        given = [] if reader is None else [reader]
        plus, minus = (columns, given) if step.spared else ([], [*columns, *given])
        model.at_least(right, [added, *plus], minus)


def _add_way(model: _Model, number: int, ways: Ways, offered: Offered) -> None:
    """Columns of a way: for each level that it may be at or above, the largest share any member has there."""
    members, constant = ways[number]
    known = [_coarser(model, member, offered) for member in members]
    floors = [model.floors[member] for member in members]
    model.floors[number] = floor = max(constant, *floors)
    columns: dict[int, int] = {}
    for level in sorted({level for own in known for level in own if level > floor}, reverse=True):
        columns[level] = model.variable(0)
    model.coarser[number] = columns
    # A way is as coarse as its coarsest member: at least each member's share at every level.
    for own in known:
        _cover(model, columns, own)
    _in_order(model, [*columns.values()])


def _add_loss(model: _Model, loss: Loss, offered: Offered, cost_model: CostModel) -> None:
    """A variable per step that the coarsest label upstream may add to what is paid anyway."""
    known = [_coarser(model, member, offered) for member in loss.upstream]
    anyway = max(loss.constant, *(model.floors[member] for member in loss.upstream))
    paid = loss_price(loss, max(0, anyway - loss.own), cost_model.costs)
    model.base += paid
    steps: dict[int, int] = {}
    for level in sorted({level for own in known for level in own if level > anyway}):
        price = loss_price(loss, max(0, level - loss.own), cost_model.costs)
        if price > paid:
            steps[level] = model.variable(price - paid)
            paid = price
    for own in known if steps else ():
        _cover(model, steps, own)
    _in_order(model, [*reversed(steps.values())])


def _cover(model: _Model, steps: dict[int, int], shares: dict[int, int]) -> None:
    """A step is taken as far as a share is of its level or above it."""
    levels = sorted(steps)
    for level, share in shares.items():
        at = bisect_right(levels, level) - 1
        if at >= 0:
            model.at_least(0, [steps[levels[at]]], [share])


def _in_order(model: _Model, columns: Sequence[int]) -> None:
    """Of columns, the coarsest level first, each next one is at least the one before."""
    for coarser, finer in itertools.pairwise(columns):
        model.at_least(0, [finer], [coarser])


def _coarser(model: _Model, c: int, offered: Offered) -> dict[int, int]:
    """A column for each level of a class but the finest, coarsest first: the share of labels not finer."""
    if c in model.coarser:
        return model.coarser[c]
    picks: dict[int, list[int]] = {}
    for label, x in zip(offered[c], model.picks[c], strict=True):
        picks.setdefault(level_of(label), []).append(x)
    # The finest level is paid in any case and needs no column.
    floor, *levels = sorted(picks)
    columns: dict[int, int] = {}
    beyond: list[int] = []
    for level in reversed(levels):
        columns[level] = share = model.variable(0)
        own = [*picks[level], *beyond]
        model.equal.append((0, [share, *own], [1] + [-1] * len(own)))
        beyond = [share]
    model.floors[c], model.coarser[c] = floor, columns
    return columns
