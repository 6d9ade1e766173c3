"""Labelling: choose a label for every class of a component so that the price is least.

`minimal` tries one label for all first (provably least when it pays only what nobody can avoid), then
all labellings of small components, then a MILP (HiGHS), polished by local search. What is not proven
optimal carries a lower bound. Limits are counts, never wall time. Source: design 01, section 5.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from planner.ir.qtypes import Uniform
from planner.propagation.labels import (
    Label,
    LabelClass,
    hull_of,
    label_for,
    label_of,
    legal,
    typed,
)
from planner.propagation.network import Network
from planner.propagation.price import (
    FLOAT_USE,
    Component,
    Edge,
    Market,
    component_price,
    log_units,
    loss_price,
)
from planner.target.records import PortType

ENUMERATED: Final = 600
MILP_VARIABLES: Final = 6_000
MILP_NODES: Final = 400
SWEEPS: Final = 20


@dataclass(frozen=True, slots=True)
class Solution:
    """A labelling of one component.

    `price` and `bound` in 1/1024; `refused`: the other labels for all classes alike, with their price.
    """

    labels: Mapping[int, Label | None]
    price: int
    bound: int
    refused: tuple[tuple[Label | None, int], ...] = ()


def offer_labels(
    component: Component, classes: Sequence[LabelClass], network: Network, max_clip: float
) -> None:
    """Give every class of a component its legal labels, finest first (float last).

    A class that no label serves within `max_clip` keeps its own: it has no finer choice.
    """
    members = [classes[c] for c in component.classes]
    candidates = _candidates(component, classes, network)
    order = sorted(candidates, key=lambda label: (label[0], label[1]))
    for entry in members:
        if entry.fixed is not None:
            entry.labels = [label_of(entry.fixed)]
            continue
        found: list[Label | None] = [label for label in order if legal(label, entry, max_clip)]
        if not found and entry.own is not None:
            found = [entry.own]
        entry.labels = [*found, None] if entry.may_float else found


def _candidates(component: Component, classes: Sequence[LabelClass], network: Network) -> set[Label]:
    members = [classes[c] for c in component.classes]
    labels = {entry.own for entry in members if entry.own is not None}
    specs: dict[PortType, None] = dict.fromkeys(port.spec for entry in members for port in entry.ports)
    for edge in component.edges:
        pin = network.values[edge.value].pin
        if pin is not None and pin.is_per_tensor:
            labels.add(label_of(pin))
        joined = list(dict.fromkeys(group for group, _ in edge.uses if group != FLOAT_USE))
        joined += [edge.definition[0]] if edge.definition and edge.definition[0] not in joined else []
        for a, b in itertools.combinations(joined[:64], 2):
            labels |= _hull_labels([classes[a], classes[b]], specs)
    if len(members) > 1:
        labels |= _hull_labels(members, specs)
    return labels


def _hull_labels(entries: list[LabelClass], specs: Mapping[PortType, None]) -> set[Label]:
    hull = hull_of(entries)
    if hull is None:
        return set()
    mine = dict.fromkeys(port.spec for entry in entries for port in entry.ports)
    return {label_for(hull, spec) for spec in specs if spec in mine}


def solve(component: Component, classes: Sequence[LabelClass], market: Market) -> Solution:
    """Find the cheapest labelling; labels must have been offered and losses settled."""
    if len(component.classes) == 1 and len(classes[component.classes[0]].labels) == 1:
        only = classes[component.classes[0]]
        price = component_price(component, {only.id: only.labels[0]}, market)[0]
        return Solution({only.id: only.labels[0]}, price, price)
    floor = unavoidable_casts(component, classes, market)
    alike = _alike(component, classes, market)
    if alike and alike[0][0][0] == floor and alike[0][0][1] == 0:
        (best, assignment), *rest = alike
        return Solution(assignment, best[0], best[0], _refusals(rest))
    refused = _refusals(alike)
    count = math.prod(len(classes[c].labels) for c in component.classes)
    if count <= ENUMERATED:
        best, assignment = _enumerate(component, classes, market)
        return Solution(assignment, best[0], best[0], refused)
    starts = [assignment for _, assignment in alike[:4]]
    starts.append({c: classes[c].labels[0] for c in component.classes})
    starts.append({c: _nearest_own(classes[c]) for c in component.classes})
    polished = [_descend(component, classes, market, start) for start in starts]
    best, assignment = min(polished, key=lambda item: item[0])
    if best[0] > floor:
        found, bound, proven = _milp(component, classes, market)
        floor = max(floor, bound)
        if found is not None:
            improved = _descend(component, classes, market, found)
            if improved[0] < best:
                best, assignment = improved
        if proven:
            floor = best[0]
    return Solution(assignment, best[0], min(floor, best[0]), refused)


def _refusals(
    alike: Sequence[tuple[tuple[int, int, int], Mapping[int, Label | None]]],
) -> tuple[tuple[Label | None, int], ...]:
    return tuple((next(iter(assignment.values())), price[0]) for price, assignment in alike[:3])


def _nearest_own(entry: LabelClass) -> Label | None:
    return entry.own if entry.own in entry.labels else entry.labels[0]


def unavoidable_casts(component: Component, classes: Sequence[LabelClass], market: Market) -> int:
    """Quantizes and dequantizes that every labelling pays: a lower bound of the price."""
    total = 0
    for edge in component.edges:
        if edge.pinned:
            continue
        sure = any(g != FLOAT_USE and None not in classes[g].labels for g, _ in edge.uses)
        floats = any(g == FLOAT_USE for g, _ in edge.uses)
        if edge.definition is None:
            total += round(market.costs.quantize * 1024) * edge.elements * edge.trips if sure else 0
        elif floats and None not in classes[edge.definition[0]].labels:
            total += round(market.costs.dequantize * 1024) * edge.elements * edge.trips
    return total


def _alike(
    component: Component, classes: Sequence[LabelClass], market: Market
) -> list[tuple[tuple[int, int, int], dict[int, Label | None]]]:
    """Every label that all classes may take (fixed ones keep theirs), cheapest first."""
    shared: dict[Label | None, None] | None = None
    for c in component.classes:
        if classes[c].fixed is None:
            mine = dict.fromkeys(classes[c].labels)
            shared = mine if shared is None else {label: None for label in shared if label in mine}
    found = []
    for label in shared or {}:
        assignment = {
            c: label if classes[c].fixed is None else classes[c].labels[0] for c in component.classes
        }
        found.append((component_price(component, assignment, market), assignment))
    found.sort(key=lambda item: item[0])
    return found


def _enumerate(
    component: Component, classes: Sequence[LabelClass], market: Market
) -> tuple[tuple[int, int, int], dict[int, Label | None]]:
    best: tuple[tuple[int, int, int], dict[int, Label | None]] | None = None
    for chosen in itertools.product(*(classes[c].labels for c in component.classes)):
        assignment = dict(zip(component.classes, chosen, strict=True))
        price = component_price(component, assignment, market)
        if best is None or price < best[0]:
            best = price, assignment
    if best is None:
        raise AssertionError("a class without labels")
    return best


def _descend(
    component: Component,
    classes: Sequence[LabelClass],
    market: Market,
    start: Mapping[int, Label | None],
) -> tuple[tuple[int, int, int], dict[int, Label | None]]:
    """Local search: change one class at a time while the price falls."""
    assignment = {c: start[c] if start[c] in classes[c].labels else classes[c].labels[0] for c in start}
    near = _neighbourhoods(component)
    for _ in range(SWEEPS):
        changed = False
        for c in component.classes:
            if len(classes[c].labels) == 1:
                continue
            part = near[c]
            here, kept = component_price(part, assignment, market), assignment[c]
            for label in classes[c].labels:
                assignment[c] = label
                price = component_price(part, assignment, market)
                if price < here:
                    here, kept, changed = price, label, True
            assignment[c] = kept
        if not changed:
            break
    return component_price(component, assignment, market), assignment


def _neighbourhoods(component: Component) -> dict[int, Component]:
    """The edges and losses that each class takes part in."""
    near = {c: Component([c]) for c in component.classes}
    for edge in component.edges:
        touched = {group for group, _ in edge.uses if group != FLOAT_USE}
        touched |= {edge.definition[0]} if edge.definition else set()
        for c in touched:
            near[c].edges.append(edge)
    for loss in component.losses:
        for c in loss.upstream:
            near[c].losses.append(loss)
    return near


class _Model:
    """A MILP under construction: minimise cost . x with rows lo <= A x <= hi."""

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


def _milp(
    component: Component, classes: Sequence[LabelClass], market: Market
) -> tuple[dict[int, Label | None] | None, int, bool]:
    """(a labelling, a lower bound of the price, whether the labelling is proven least).

    No labelling where the model is too large.
    """
    model = _Model()
    pick = {
        c: {label: model.variable(0.0, whole=True) for label in classes[c].labels} for c in component.classes
    }
    for variables in pick.values():
        model.row([(x, 1.0) for x in variables.values()], 1.0, 1.0)
    for edge in component.edges:
        _edge_rows(model, edge, pick, market)
        if len(model.cost) > MILP_VARIABLES:
            return None, 0, False
    for loss in component.losses:
        levels = sorted(
            {log_units(label[0]) for c in loss.upstream for label in classes[c].labels if label is not None}
        )
        paid = loss_price(loss, max(0, loss.constant - loss.own), market.costs)
        for level in levels:
            price = loss_price(loss, max(0, max(level, loss.constant) - loss.own), market.costs)
            if price > paid:
                z = model.variable(float(price - paid), whole=False)
                for c in loss.upstream:
                    coarse = [
                        (x, 1.0)
                        for label, x in pick[c].items()
                        if label is not None and log_units(label[0]) >= level
                    ]
                    if coarse:
                        model.row([*coarse, (z, -1.0)], -np.inf, 0.0)
                paid = price
        if len(model.cost) > MILP_VARIABLES:
            return None, 0, False
    base = sum(loss_price(loss, max(0, loss.constant - loss.own), market.costs) for loss in component.losses)
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
    bound = 0
    if answer.mip_dual_bound is not None and math.isfinite(answer.mip_dual_bound):
        # HiGHS is exact to about 1e-6 of the largest price; the bound gives that much away.
        bound = max(0, math.ceil((answer.mip_dual_bound - 1e-6) * scale) + base)
    if answer.x is None:
        return None, bound, False
    found = {c: max(pick[c], key=lambda label, c=c: answer.x[pick[c][label]]) for c in pick}  # type: ignore[misc]
    return found, bound, answer.status == 0


def _edge_rows(
    model: _Model, edge: Edge, pick: Mapping[int, Mapping[Label | None, int]], market: Market
) -> None:
    """One cost variable per type that uses of this value may want."""
    weight = float(edge.elements * edge.trips)
    defined: list[tuple[Uniform | None, int | None]] = [(None, None)]
    if edge.definition is not None:
        group, store = edge.definition
        defined = [(None if lb is None else typed(lb, store), x) for lb, x in pick[group].items()]
    if edge.pinned:
        for kind, x in defined:
            price = market.pair(kind, edge.base)[0] if kind != edge.base else 0
            if price and x is not None:
                model.cost[x] += price * weight
        defined = [(edge.base, None)]
    wanted: dict[tuple[Uniform | None, int], list[list[int]]] = {}
    for n, (group, use_store) in enumerate(edge.uses):
        if group == FLOAT_USE:
            wanted.setdefault((None, 0), []).append([])
            continue
        for label, x in pick[group].items():
            kind = None if label is None or use_store is None else typed(label, use_store)
            key = (kind, n if market.single_consumer else 0)
            wanted.setdefault(key, []).append([x])
    for (kind, _), users in wanted.items():
        prices = [(market.pair(source, kind)[0] if source != kind else 0, x) for source, x in defined]
        worst = max(price for price, _ in prices)
        if worst == 0:
            continue
        y = model.variable(weight, whole=False, top=float(worst))
        for users_x in users:
            # y >= price(defined) - worst * (1 - used)
            terms = [(x, -float(price)) for price, x in prices if x is not None and price]
            fixed = sum(price for price, x in prices if x is None)
            used = [(x, -float(worst)) for x in users_x]
            slack = float(worst) if users_x else 0.0
            model.row([(y, 1.0), *terms, *used], fixed - slack, np.inf)
