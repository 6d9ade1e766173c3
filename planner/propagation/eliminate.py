"""Exact labelling by eliminating one class at a time (bucket elimination), in whole numbers.

The price of a unit is a sum of tables: one per value, one per consuming use. To eliminate a class, the
tables it is in are added up and the least over its labels is kept. Networks are nearly chains and ladders, so
tables stay small; where they would not, nothing is found. Entries are Python integers whose digits are
(price, rescales, elements x lost, label of the first class, ...), so ties are decided exactly.
Source: Dechter, "Bucket elimination"; design 01, section 5, the price, items 5 and 6.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from planner.propagation.components import NEVER, Edge, Loss, Price, Unit
from planner.propagation.edgetables import Table, edge_tables
from planner.propagation.labels import Label, log_units
from planner.propagation.price import Market, edge_price, loss_price

TABLE: Final = 20_000  # entries of one table
TABLES: Final = 400_000  # entries of all tables that eliminating makes
PRICED: Final = 30_000  # entries of all tables that it starts from
DIRECT: Final = 64
RANKED: Final = 1_000  # classes whose labels are digits of the entries: more make the integers long

Offered = Mapping[int, Sequence[Label | None]]


@dataclass(frozen=True, slots=True)
class _Term:
    """What is added to the price by the picks of a few variables; a table as soon as it is needed."""

    variables: tuple[int, ...]
    table: Callable[[], Table]


@dataclass(frozen=True, slots=True)
class _Factor:
    """A table over variables: one axis each, one entry per pick."""

    variables: tuple[int, ...]
    table: Table


@dataclass(slots=True)
class _Digits:
    """How (price, rescales, lost) are packed above the digits of the labels."""

    lost: int
    rescales: int
    price: int

    def pack(self, price: int, rescales: int, lost: int) -> int:
        return (price << self.price) + (rescales << self.rescales) + (lost << self.lost)


@dataclass(slots=True)
class _Problem:
    """Variables are classes with a choice, then the coarsest scales met on the way to a use."""

    sizes: dict[int, int]
    digits: _Digits
    terms: list[_Term] = field(default_factory=list)
    coarsest: dict[tuple[int, ...], int] = field(default_factory=dict)
    levels: dict[int, list[int]] = field(default_factory=dict)


def eliminate(unit: Unit, offered: Offered, market: Market) -> dict[int, Label | None] | None:
    """Find the cheapest labelling, classes in canonical order; None where tables would grow too large."""
    if sum(math.prod([len(offered[c]) for c in edge.groups()]) for edge in unit.edges) > PRICED:
        return None
    problem = _problem(unit, offered, market)
    sizes = problem.sizes
    if sum(math.prod(sizes[v] for v in term.variables) for term in problem.terms) > PRICED:
        return None
    order = _order(problem)
    if order is None:
        return None
    picks = _minimise(problem, order)
    return {c: offered[c][picks.get(c, 0)] for c in unit.classes}


def _problem(unit: Unit, offered: Offered, market: Market) -> _Problem:
    sizes = {c: len(offered[c]) for c in unit.classes if len(offered[c]) > 1}
    problem = _Problem(sizes, _digits(unit, offered))
    shift = problem.digits.lost
    for c in unit.classes[:RANKED]:
        bits = (len(offered[c]) - 1).bit_length()
        shift -= bits
        if bits:
            problem.terms.append(_Term((c,), partial(_ranks, sizes[c], shift)))
    for c in unit.classes:
        scales = (NEVER if label is None else log_units(label[0]) for label in offered[c])
        problem.levels[c] = list(scales)
    for edge in unit.edges:
        _add_edge(problem, edge, offered, market)
    for loss in unit.losses:
        _add_loss(problem, loss, market)
    for c, toll in unit.tolls.items():
        prices = [toll[label] for label in offered[c]]
        problem.terms.append(_Term((c,), partial(_packed, prices, problem.digits)))
    return problem


def _digits(unit: Unit, offered: Offered) -> _Digits:
    lost = sum((len(offered[c]) - 1).bit_length() for c in unit.classes[:RANKED])
    most_lost = (
        sum(loss.elements * loss.times for loss in unit.losses) << 22
    )  # log2(scale) is within +-1074, in 1/1024
    most_rescales = sum(len(edge.uses) for edge in unit.edges)
    for toll in unit.tolls.values():
        most_rescales += max(rescales for _, rescales, _ in toll.values())
        most_lost += max(own for _, _, own in toll.values())
    rescales = lost + most_lost.bit_length()
    return _Digits(lost, rescales, rescales + most_rescales.bit_length())


def _add_edge(problem: _Problem, edge: Edge, offered: Offered, market: Market) -> None:
    groups = edge.groups()
    variables = tuple([c for c in groups if c in problem.sizes])
    if not variables:
        return

    def entry(*picked: int) -> int:
        labels = {c: offered[c][i] for c, i in zip(groups, picked, strict=True)}
        return problem.digits.pack(*edge_price(edge, labels, market), 0)

    def table() -> Table:
        whole = edge_tables(edge, offered, market)
        if whole is None:
            packed = _one_by_one([len(offered[c]) for c in groups], entry)
        else:
            price, rescales = whole
            packed = price * (1 << problem.digits.price) + rescales * (1 << problem.digits.rescales)
        return packed.reshape([problem.sizes[c] for c in variables])

    problem.terms.append(_Term(variables, table))


def _add_loss(problem: _Problem, loss: Loss, market: Market) -> None:
    """A table over the classes on the way, or over the coarsest of them where they are many."""
    levels = problem.levels
    fixed = max([loss.constant, *(levels[c][0] for c in loss.upstream if len(levels[c]) == 1)])
    free = tuple(c for c in loss.upstream if len(levels[c]) > 1)
    if math.prod(len(levels[c]) for c in free) > DIRECT and len(free) > 2:
        free = (_coarsest(problem, free[:-1]), free[-1])

    def entry(coarsest: int) -> int:
        lost = max(0, coarsest - loss.own)
        return problem.digits.pack(loss_price(loss, lost, market.costs), 0, loss.elements * lost * loss.times)

    def table() -> Table:
        coarsest = np.full([1] * len(free), fixed, np.int64)
        for axis, c in enumerate(free):
            shape = [-1 if i == axis else 1 for i in range(len(free))]
            coarsest = np.maximum(coarsest, np.array(levels[c], np.int64).reshape(shape))
        found, places = np.unique(coarsest, return_inverse=True)
        entries = np.array([entry(level) for level in found.tolist()], object)
        made: Table = entries[places.reshape(-1)].reshape(coarsest.shape)
        return made

    problem.terms.append(_Term(free, table))


def _coarsest(problem: _Problem, group: tuple[int, ...]) -> int:
    """The variable that is the coarsest level of these classes; ways with a beginning in common share it."""
    if len(group) == 1:
        return group[0]
    if group in problem.coarsest:
        return problem.coarsest[group]
    before = _coarsest(problem, group[:-1])
    levels, last = problem.levels, group[-1]
    floor = max(min(levels[before]), min(levels[last]))
    mine = sorted({level for level in (*levels[before], *levels[last]) if level >= floor})
    variable = -1 - len(problem.coarsest)
    problem.coarsest[group], problem.levels[variable], problem.sizes[variable] = variable, mine, len(mine)
    never = 1 << problem.digits.price + 80

    def table() -> Table:
        coarser = np.maximum.outer(levels[before], levels[last])
        return np.where(coarser[..., None] == np.array(mine), 0, np.array(never, object))

    problem.terms.append(_Term((before, last, variable), table))
    return variable


def _order(problem: _Problem) -> list[int] | None:
    """Eliminate next what makes the smallest table; None where that is too large."""
    sizes = problem.sizes
    near: dict[int, dict[int, None]] = {variable: {} for variable in sizes}
    for term in problem.terms:
        for variable in term.variables:
            near[variable].update(dict.fromkeys(term.variables))
    place = {variable: i for i, variable in enumerate(sizes)}
    cost = {variable: _entries(near[variable], variable, sizes) for variable in sizes}
    order, spent = [], 0
    while near:
        variable = min(near, key=lambda v: (cost[v], place[v]))
        spent += cost[variable]
        if cost[variable] > TABLE or spent > TABLES:
            return None
        others = [v for v in near.pop(variable) if v != variable]
        for other in others:
            del near[other][variable]
            near[other].update(dict.fromkeys(others))
        for other in others:
            cost[other] = _entries(near[other], other, sizes)
        order.append(variable)
    return order


def _entries(near: Mapping[int, None], variable: int, sizes: Mapping[int, int]) -> int:
    return math.prod(sizes[other] for other in near) if near else sizes[variable]


def _minimise(problem: _Problem, order: Sequence[int]) -> dict[int, int]:
    """Eliminate every variable, then pick backwards."""
    buckets: dict[int, list[_Factor]] = {variable: [] for variable in order}
    place = {variable: i for i, variable in enumerate(order)}
    for term in problem.terms:
        _drop_in(buckets, place, _Factor(term.variables, term.table()))
    best: list[tuple[int, tuple[int, ...], Table]] = []
    for variable in order:
        factors = buckets.pop(variable)
        others = sorted({v for f in factors for v in f.variables if v != variable}, key=place.__getitem__)
        variables = (*others, variable)
        total = np.zeros(tuple(problem.sizes[v] for v in variables), object)
        for factor in factors:
            total = total + _aligned(factor, variables)
        best.append((variable, tuple(others), np.argmin(total, axis=-1)))
        _drop_in(buckets, place, _Factor(tuple(others), np.min(total, axis=-1)))
    picks: dict[int, int] = {}
    for variable, given, least in reversed(best):
        picks[variable] = int(least[tuple(picks[v] for v in given)])
    return picks


def _ranks(size: int, shift: int) -> Table:
    return np.array([rank << shift for rank in range(size)], object)


def _packed(prices: Sequence[Price], digits: _Digits) -> Table:
    return np.array([digits.pack(*price) for price in prices], object)


def _one_by_one(sizes: Sequence[int], entry: Callable[..., int]) -> Table:
    table = np.empty(sizes, object)
    for picked in itertools.product(*map(range, sizes)):
        table[picked] = entry(*picked)
    return table


def _drop_in(buckets: Mapping[int, list[_Factor]], place: Mapping[int, int], factor: _Factor) -> None:
    if factor.variables:
        buckets[min(factor.variables, key=place.__getitem__)].append(factor)


def _aligned(factor: _Factor, variables: tuple[int, ...]) -> Table:
    """The factor's table with an axis for each of the variables, of length 1 where it has none."""
    axes = sorted(range(len(factor.variables)), key=lambda i: variables.index(factor.variables[i]))
    table = np.transpose(factor.table, axes)
    present = iter(table.shape)
    return table.reshape([next(present) if v in factor.variables else 1 for v in variables])
