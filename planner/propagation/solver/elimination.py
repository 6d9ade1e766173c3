"""Exact labelling by eliminating one class at a time (bucket elimination), in whole numbers.

The price of a unit is a sum of tables: one per value, one per consuming use. To eliminate a class, the
tables it is in are added up and the least over its labels is kept. Networks are nearly chains and ladders, so
tables stay small; where they would not, nothing is found. An entry is one whole number whose digits are
(price, rescales, elements x lost, label of the first class, ...), so ties are decided exactly: a machine's
integer where that has room for them, else Python's. Without room for labels alone they are left out, which
is enough if no two labellings are equally good. Large tables have machine integers alone: there the price is
exact, and ties are decided by as many digits as fit.
Source: Dechter, "Bucket elimination"; docs/specification.md, section 5, the price, items 5 and 6.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from planner.propagation.solver.classes import Labels, Offered
from planner.propagation.solver.components import Edge, Unit
from planner.propagation.solver.edge_tables import ROOM, Table, edge_tables
from planner.propagation.solver.price import CostModel, edge_price, loss_price
from planner.propagation.solver.ways import Loss, Way, level_of

DIRECT: Final = 64
FEW: Final = 8  # labellings of an edge that are priced one by one sooner than in tables
RANKED: Final = 1_000  # classes whose labels are digits of the entries: more make the integers long


@dataclass(frozen=True, slots=True)
class Room:
    """How many entries tables may have.

    Attributes:
      table: one table.
      each: all tables, for each class: what is done grows as the unit does.
      least: all tables of a unit of any size.
      ranked: whether ties are decided by all digits, with Python's integers where a machine's are too short;
        else by as many as these have room for.
    """

    table: int
    each: int
    least: int
    ranked: bool


SMALL: Final = Room(20_000, 1_000, 400_000, ranked=True)
LARGE: Final = Room(1_000_000, 40_000, 16_000_000, ranked=False)


class _Prices(NamedTuple):
    """Tables of the digits, as whole numbers; None where all are 0."""

    price: Table
    rescales: Table | None = None
    lost: Table | None = None


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of the price, by the picks of a few variables, or which picks go together at all."""

    variables: tuple[int, ...]
    prices: Callable[[], _Prices] | None = None
    allowed: Callable[[], Table] | None = None


@dataclass(frozen=True, slots=True)
class _Factor:
    """A table over variables: one axis each, one entry per pick."""

    variables: tuple[int, ...]
    table: Table


@dataclass(frozen=True, slots=True)
class _Digits:
    """How the digits of an entry are packed: what each is counted in, and how many there are of it."""

    steps: Sequence[int]
    sizes: Sequence[int]
    ranked: Sequence[int]
    labels: int
    rules: int

    @property
    def never(self) -> int:
        """More than any labelling costs."""
        return math.prod(self.sizes) * self.labels

    @property
    def fits(self) -> bool:
        """Whether a machine's integer has room for all entries."""
        return self.never * (1 + self.rules) < ROOM

    @property
    def kind(self) -> type:
        """Of an entry."""
        return np.int64 if self.fits else object

    def pack(self, prices: _Prices) -> Table:
        """The entries of one table."""
        packed: Table = (prices.price // self.steps[0]).astype(self.kind)
        for size, step, digit in zip(
            self.sizes[1:], self.steps[1:], prices[1 : len(self.sizes)], strict=True
        ):
            packed = packed * size
            if digit is not None:
                packed += (digit // step).astype(self.kind)
        return packed * self.labels


@dataclass(slots=True)
class _Problem:
    """Variables are classes with a choice, then the coarsest scales met on the way to a use.

    Attributes:
      sizes: how many picks each variable has.
      levels: of each variable or class, by pick.
      coarsest: the variables that are the coarser of two others, each made once.
      ways: of each way its variable, or the level that it has for certain.
    """

    sizes: dict[int, int]
    first: int
    terms: list[_Term] = field(default_factory=list)
    levels: dict[int, list[int]] = field(default_factory=dict)
    coarsest: dict[tuple[int, int, int], int] = field(default_factory=dict)
    ways: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)


def eliminate(unit: Unit, offered: Offered, cost_model: CostModel, room: Room) -> Labels | None:
    """Find the cheapest labelling, classes in canonical order; None where tables would grow too large."""
    # Limits are for each class: a chain of a million classes is as easy, class by class, as one of ten,
    # while one class that meets too many others is not, however small the unit.
    most = max(room.least, room.each * len(unit.classes))
    spent = 0
    for edge in unit.edges:
        entries = _product((len(offered[c]) for c in edge.groups()), room.table)
        spent += entries * len(edge.uses)
        if entries > room.table or spent > most:
            return None
    problem = _problem(unit, offered, cost_model)
    sizes = problem.sizes
    order = _order(problem, room.table, most - spent)
    if order is None:
        return None
    picks = _picks(problem, order, [c for c in unit.classes if c in sizes], room)
    return None if picks is None else {c: offered[c][picks.get(c, 0)] for c in unit.classes}


def _product(sizes: Iterable[int], most: int) -> int:
    """The entries of a table; of one that is too large only that it is."""
    entries = 1
    for size in sizes:
        entries *= size
        if entries > most:
            break
    return entries


def _picks(
    problem: _Problem, order: Sequence[int], classes: Sequence[int], room: Room
) -> dict[int, int] | None:
    """The best label of each class by its number; None where entries would be longer than the room allows."""
    terms = [term for term in problem.terms if term.variables]  # others are the same for all labellings
    priced = [(term.variables, term.prices()) for term in terms if term.prices is not None]
    digits = _digits(problem, [prices for _, prices in priced], classes[:RANKED])
    if room.ranked and digits.fits:
        return _minimise(problem, _factors(problem, priced, digits), order)[0]
    # Python's integers hold anything but are ten times slower. Without the digits for labels most units fit a
    # machine's integer, and that is as good where no two labellings tie.
    fewer = replace(digits, ranked=(), labels=1)
    while not (room.ranked or fewer.fits) and len(fewer.sizes) > 1:
        fewer = replace(fewer, sizes=fewer.sizes[:-1], steps=fewer.steps[:-1])
    if fewer.fits:
        picks, alone = _minimise(problem, _factors(problem, priced, fewer), order)
        if alone or not room.ranked:
            return picks
    return _minimise(problem, _factors(problem, priced, digits), order)[0] if room.ranked else None


def _digits(problem: _Problem, priced: Sequence[_Prices], ranked: Sequence[int]) -> _Digits:
    steps, sizes = [], []
    for n in range(len(_Prices._fields)):
        tables = [table for prices in priced if (table := prices[n]) is not None]
        # Prices of one unit are multiples of a common step; divided by it they leave room for more digits.
        steps.append(math.gcd(*(int(np.gcd.reduce(table, axis=None)) for table in tables)) or 1)
        sizes.append(1 + sum(int(table.max()) for table in tables) // steps[-1])
    rules = sum(term.allowed is not None for term in problem.terms)
    return _Digits(steps, sizes, ranked, math.prod(problem.sizes[c] for c in ranked), rules)


def _factors(
    problem: _Problem, priced: Sequence[tuple[tuple[int, ...], _Prices]], digits: _Digits
) -> list[_Factor]:
    found = [_Factor(variables, digits.pack(prices)) for variables, prices in priced]
    worth, kind = digits.labels, digits.kind
    for c in digits.ranked:
        # The digit of the first class in canonical order is the most significant one: finer label there
        # first.
        worth //= problem.sizes[c]
        found.append(_Factor((c,), np.array([worth * i for i in range(problem.sizes[c])], kind)))
    for term in problem.terms:
        if term.allowed is not None:
            # A whole number larger than any labelling's price, so that sums of forbidden picks never win by
            # overflow.
            table = np.where(term.allowed(), np.array(0, kind), np.array(digits.never, kind))
            found.append(_Factor(term.variables, table))
    return found


def _problem(unit: Unit, offered: Offered, cost_model: CostModel) -> _Problem:
    sizes = {c: len(offered[c]) for c in unit.classes if len(offered[c]) > 1}
    problem = _Problem(sizes, max(unit.classes) + 1)
    for c in unit.classes:
        problem.levels[c] = [level_of(label) for label in offered[c]]
    for edge in unit.edges:
        # A class with one label is no variable: its part of the price is the same in every labelling.
        variables = tuple([c for c in edge.groups() if c in sizes])
        if variables:  # others cost the same whatever is picked
            problem.terms.append(_Term(variables, partial(_of_edge, edge, offered, cost_model)))
    # Earlier ways come first, so that a way finds the variables of those it is made of.
    for number, way in unit.ways.items():
        problem.ways[number] = _of_way(problem, way)
    for loss in unit.losses:
        _add_loss(problem, loss, cost_model)
    return problem


def _of_edge(edge: Edge, offered: Offered, cost_model: CostModel) -> _Prices:
    groups = edge.groups()
    several = [c for c in groups if len(offered[c]) > 1]
    shape = [len(offered[c]) for c in several]
    tables = edge_tables(edge, offered, cost_model) if math.prod(shape) > FEW else None
    if tables is None:
        tables = np.empty(shape, object), np.empty(shape, object)
        labels = {c: offered[c][0] for c in groups}
        for picked in itertools.product(*map(range, shape)):
            labels.update((c, offered[c][i]) for c, i in zip(several, picked, strict=True))
            tables[0][picked], tables[1][picked] = edge_price(edge, labels, cost_model)
    return _Prices(*tables)


def _split(problem: _Problem, members: Sequence[int], constant: int) -> tuple[tuple[int, ...], int]:
    """The variables among some classes and ways, and the coarsest level that the others have for certain."""
    free: dict[int, None] = {}
    for member in members:
        if member < 0:
            variables, certain = problem.ways[member]
            free |= dict.fromkeys(variables)
            constant = max(constant, certain)
        elif len(problem.levels[member]) > 1:
            free[member] = None
        else:
            constant = max(constant, problem.levels[member][0])
    return tuple(free), constant


def _of_way(problem: _Problem, way: Way) -> tuple[tuple[int, ...], int]:
    """A way as the variable that is the coarsest of its members, and what it is at least for certain."""
    free, constant = _split(problem, *way)
    if len(free) < 2:
        return free, constant
    variable = _coarsest(problem, free, constant)
    certain = problem.levels[variable]
    return ((variable,), constant) if len(certain) > 1 else ((), certain[0])


def _add_loss(problem: _Problem, loss: Loss, cost_model: CostModel) -> None:
    """A table over the classes on the way, or over the coarsest of them where they are many."""
    levels = problem.levels
    free, constant = _split(problem, loss.upstream, loss.constant)
    if not free:
        return
    # A table over all classes of a long way would be the product of their labels; only the coarsest counts,
    # so one variable for it stands between, and its levels are no more than those of all labels.
    if len(free) > 2 and math.prod(len(levels[c]) for c in free) > DIRECT:
        free = (_coarsest(problem, free[:-1], constant), free[-1])

    def prices() -> _Prices:
        coarsest = np.full([1] * len(free), constant, np.int64)
        for axis, c in enumerate(free):
            shape = [-1 if i == axis else 1 for i in range(len(free))]
            coarsest = np.maximum(coarsest, np.array(levels[c], np.int64).reshape(shape))
        bits = [max(0, level - loss.own) for level in coarsest.reshape(-1).tolist()]
        known = {lost: loss_price(loss, lost, cost_model.costs) for lost in set(bits)}
        price = np.array([known[lost] for lost in bits], object)
        worst = np.array([loss.elements * lost * loss.times for lost in bits], object)
        return _Prices(price.reshape(coarsest.shape), None, worst.reshape(coarsest.shape))

    problem.terms.append(_Term(free, prices))


def _coarsest(problem: _Problem, group: Sequence[int], floor: int) -> int:
    """The variable that is the coarsest level of these, two at a time: beginnings in common are shared."""
    last = group[0]
    for other in group[1:]:
        if other != last:  # which may be the coarsest of those before, known from another way
            last = _coarser(problem, last, other, floor)
    return last


def _coarser(problem: _Problem, a: int, b: int, floor: int) -> int:
    """The variable that is the coarser level of two, none of its levels below the floor."""
    known = problem.coarsest.get((a, b, floor))
    if known is not None:
        return known
    levels = problem.levels
    # The coarser of two is never finer than either's finest level, so levels below that need no pick.
    least = max(floor, min(levels[a]), min(levels[b]))
    mine = sorted({max(level, least) for level in (*levels[a], *levels[b])})
    variable = problem.first + len(problem.coarsest)
    problem.coarsest[a, b, floor] = variable
    problem.levels[variable], problem.sizes[variable] = mine, len(mine)

    def allowed() -> Table:
        coarser = np.maximum(np.maximum.outer(levels[a], levels[b]), floor)
        # Allowed are the picks in which the variable is the maximum of the two; all others cost `never`.
        agree: Table = coarser[..., None] == np.array(mine)
        return agree

    problem.terms.append(_Term((a, b, variable), None, allowed))
    return variable


def _order(problem: _Problem, table: int, most: int) -> list[int] | None:
    """Eliminate next what leaves the smallest table; None where one, or all of them, are too large."""
    sizes = problem.sizes
    near: dict[int, dict[int, None]] = {variable: {} for variable in sizes}
    for term in problem.terms:
        for variable in term.variables:
            near[variable].update(dict.fromkeys(term.variables))
            del near[variable][variable]
    place = {variable: i for i, variable in enumerate(sizes)}
    cost = {
        variable: _product((sizes[other] for other in around), table) for variable, around in near.items()
    }
    # Smallest table left first (min-weight order): no order is known to be best, and this one takes chains
    # and ladders from their ends. Costs change as neighbours merge, so the heap holds old entries beside new
    # ones.
    heap = [(cost[variable], place[variable], variable) for variable in sizes]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        entries, _, variable = heapq.heappop(heap)
        if variable not in near or entries != cost[variable]:
            continue  # an entry that a later one replaced
        whole = entries * sizes[variable]
        most -= whole
        if whole > table or most < 0:
            return None
        # To minimise over a variable makes one table of all that it meets: they become each other's
        # neighbours.
        others = [*near.pop(variable)]
        for other in others:
            del near[other][variable]
            near[other].update(dict.fromkeys(others))
            del near[other][other]
        for other in others:
            cost[other] = _product((sizes[v] for v in near[other]), table)
            heapq.heappush(heap, (cost[other], place[other], other))
        order.append(variable)
    return order


def _minimise(
    problem: _Problem, factors: Sequence[_Factor], order: Sequence[int]
) -> tuple[dict[int, int], bool]:
    """Eliminate every variable, then pick backwards; also whether no other picks are as good."""
    buckets: dict[int, list[_Factor]] = {variable: [] for variable in order}
    place = {variable: i for i, variable in enumerate(order)}
    for factor in factors:
        _drop_in(buckets, place, factor)
    best: list[tuple[tuple[int, ...], int, Table, Table]] = []
    for variable in order:
        mine = buckets.pop(variable)
        others = sorted({v for f in mine for v in f.variables if v != variable}, key=place.__getitem__)
        variables = (*others, variable)
        kind = mine[0].table.dtype if mine else np.int64
        total = np.zeros([problem.sizes[v] for v in variables], kind)
        for factor in mine:
            total = total + _aligned(factor, variables)
        least: Table = np.array(total.min(axis=-1), kind)
        # Two bytes for the best pick and one for its rivals, not the table: large ones would fill the memory.
        first = np.array(total.argmin(axis=-1), np.uint16)
        is_tied = np.array((total == least[..., None]).sum(axis=-1) > 1)
        best.append((tuple(others), variable, first, is_tied))
        if others:
            _drop_in(buckets, place, _Factor(tuple(others), least))
    picks: dict[int, int] = {}
    alone = True
    # Backwards, each variable's best pick depends only on variables that are picked already.
    for around, variable, first, is_tied in reversed(best):
        known = tuple(picks[v] for v in around)
        picks[variable] = int(first[known])
        alone = alone and not is_tied[known]
    return picks, alone


def _drop_in(buckets: Mapping[int, list[_Factor]], place: Mapping[int, int], factor: _Factor) -> None:
    if factor.variables:
        buckets[min(factor.variables, key=place.__getitem__)].append(factor)


def _aligned(factor: _Factor, variables: tuple[int, ...]) -> Table:
    """The factor's table with an axis for each of the variables, of length 1 where it has none."""
    axes = sorted(range(len(factor.variables)), key=lambda i: variables.index(factor.variables[i]))
    table = np.transpose(factor.table, axes)
    present = iter(table.shape)
    return table.reshape([next(present) if v in factor.variables else 1 for v in variables])
