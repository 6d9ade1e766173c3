"""The least price by trying every labelling: slow, obvious, written from docs/specification.md, section 5,
alone.

Knows nothing of planner.propagation; what is known of ports is `oracle_reading`. Raises `TooBig` where there
are too many labellings.
"""

import itertools
import math

from planner.ir.graph import Graph
from planner.ir.types.qtypes import AnyType, Uniform
from planner.ir.types.ranges import affine
from planner.target.records import PortType, Target
from tests.propagation.oracle_reading import Reading, Unclear, hull

__all__ = ["Oracle", "TooBig", "Unclear", "label_of"]

LIMIT = 1500


class TooBig(Exception):
    """More labellings than `LIMIT` in one group of classes."""


def units(scale):
    """log2 in 1/1024, half to even."""
    return round(math.log2(scale) * 1024)


def shift(store):
    return 0 if store.signed else 2 ** (store.bits - 1)


def label_of(kind):
    return (kind.scale, kind.zero_point - shift(kind.storage))


def stored(label, store):
    return None if label is None else Uniform(store, (label[0],), (label[1] + shift(store),))


def label_of_range(extent, spec):
    scale, zero = affine(*extent, spec.storage, symmetric=spec.symmetric)
    return (scale, zero - shift(spec.storage))


def clip(extent, label, store):
    """Share of a range that a label cuts off, half a step given away at each end."""
    lo, hi = min(extent[0], 0.0), max(extent[1], 0.0)
    kind = stored(label, store)
    half = kind.scale / 2
    over = max(0.0, kind.lo - half - lo) + max(0.0, hi - kind.hi - half)
    return over / (hi - lo) if over else 0.0


class Oracle(Reading):
    """`Oracle(graph, target).least()` is (price in 1/1024, rescales, elements x lost in 1/1024)."""

    def __init__(self, graph: Graph, target: Target) -> None:
        super().__init__(graph, target)
        self._set_classes()

    # items 2 and 3: classes and their labels

    def _set_classes(self):
        self.classes, self.class_of = [], {}
        for kernel in self.kernels:
            if kernel.name in self.float:
                continue
            joined = self._groups(kernel)
            ports = {(s, i): n for s, i, n, _ in self._patterns(kernel)}
            alone = [(p,) for p in ports if not any(p in g for g in joined)]
            for group in (*joined, *alone):
                if len(group) == 1 and ports[group[0]] in self.graph.constants:
                    continue
                for port in group:
                    self.class_of[kernel.name, *port] = len(self.classes)
                self.classes.append((kernel, group, [ports[p] for p in group]))
        self.parts = self._partition(self._value_links())
        self.labels = {}
        for part in self.parts:
            candidates = self._candidates(part)
            for c in part:
                self.labels[c] = self._legal_labels(c, candidates)

    def _value_links(self):
        """Lists of classes linked through one value; a value kept in float splits there."""
        links = []
        for name in self.graph.values:
            if name in self.graph.constants:
                continue
            made = [self._definition(name)] if self._definition(name) is not None else []
            read = [c for c in self._use_classes(name) if c is not None]
            links += [made, read] if name in self.none and not self.pin[name] else [made + read]
        return links

    def _definition(self, name):
        writer = self.writer.get(name)
        return self.class_of.get((writer.name, "out", writer.outputs.index(name))) if writer else None

    def _use_classes(self, name):
        """Class (None: float) of each use of a value by a kernel."""
        return [
            self.class_of.get((k.name, "in", i))
            for k in self.kernels
            for i, n in enumerate(k.inputs)
            if n == name
        ]

    def _partition(self, links):
        parts = [{c} for c in range(len(self.classes))]
        for link in links:
            touched = [p for p in parts if p & set(link)]
            if touched:
                parts = [p for p in parts if not p & set(link)] + [set().union(*touched)]
        return [sorted(p) for p in parts]

    def _fixed_of(self, c):
        kernel, group, _ = self.classes[c]
        return next((f for p in group if (f := self._fixed(kernel, *p))), None)

    def _entering(self, c):
        """(port, value) whose required ranges enter the class."""
        kernel, group, names = self.classes[c]
        ports = list(zip(group, names, strict=True))
        reads = [p for p in ports if p[0][0] == "in"]
        return reads if reads and self._moves(kernel) else ports

    def _ranges(self, c):
        kernel = self.classes[c][0]
        return [self.required.get((kernel.name, *port)) for port, _ in self._entering(c)]

    def _specs(self, c):
        kernel, group, _ = self.classes[c]
        return [self.spec[kernel.name, *port] for port in group]

    def _own(self, c):
        fixed = self._fixed_of(c)
        if fixed:
            return label_of(fixed)
        values = {name for _, name in self._entering(c)}
        pin = self.pin[next(iter(values))] if len(values) == 1 else None
        if pin and self._is_legal(c, label_of(pin)):
            return label_of(pin)
        return label_of_range(hull(self._ranges(c)), self._specs(c)[0])

    def _holds(self, label, spec):
        zero = label[1] + shift(spec.storage)
        return spec.storage.qmin <= zero <= spec.storage.qmax and not (spec.symmetric and zero)

    def _candidates(self, part):
        found = {self._own(c) for c in part}
        for name, pin in self.pin.items():
            touching = {self._definition(name), *self._use_classes(name)} - {None}
            if pin and name not in self.graph.constants and touching & set(part):
                found.add(label_of(pin))
        groups = [pair for link in self._value_links() for pair in itertools.combinations(set(link), 2)]
        groups = [g for g in groups if set(g) <= set(part)] + [tuple(part)] * (len(part) > 1)
        for group in groups:
            extent = hull(e for c in group for e in self._ranges(c))
            if extent:
                found |= {label_of_range(extent, spec) for c in group for spec in self._specs(c)}
        return found

    def _legal_labels(self, c, candidates):
        fixed = self._fixed_of(c)
        if fixed:
            return [label_of(fixed)]
        kernel, _, names = self.classes[c]
        found = [label for label in sorted(candidates) if self._is_legal(c, label)] or [self._own(c)]
        touched = any(self.pin[n] or self._fact(n, AnyType) for n in names)
        whole = all(self.class_of.get(key) == c for key in self.spec if key[0] == kernel.name)
        if self._moves(kernel) and whole and not touched:
            found.append(None)
        return found

    def _is_legal(self, c, label):
        kernel = self.classes[c][0]
        return all(self._holds(label, spec) for spec in self._specs(c)) and all(
            clip(self.required[kernel.name, *port], label, self.spec[kernel.name, *port].storage)
            <= self.target.costs.max_clip
            for port, _ in self._entering(c)
        )

    # items 4 and 5: loss and price

    def _losses(self, labels):
        """(elements, bits lost in 1/1024) of each consuming use; labels: class -> label or None."""
        coarsest, left, found = {}, {}, []
        for name, pin in self.pin.items():
            if name in self.graph.inputs and pin:
                coarsest[name], left[name] = units(pin.scale), PortType(pin.storage)
        for kernel in self.kernels:
            moved = []
            for i, name in enumerate(kernel.inputs):
                if name in self.graph.constants:
                    continue
                c = self.class_of.get((kernel.name, "in", i))
                label = labels[c] if c is not None else None
                scales = [coarsest.get(name), units(label[0]) if label else None]
                worst = max((s for s in scales if s is not None), default=None)
                if self._moves(kernel):
                    moved.append((worst, left.get(name)))
                elif c is not None:
                    found.append(self._loss(name, worst, self.spec[kernel.name, "in", i], kernel, i))
                else:
                    found.append(self._loss(name, worst, left.get(name), kernel, i))
            for i, name in enumerate(kernel.outputs):
                c = self.class_of.get((kernel.name, "out", i))
                label, pin = labels[c] if c is not None else None, self.pin[name]
                scales = [s for s, _ in moved] + ([units(label[0])] if label else [])
                scales += [units(pin.scale)] if pin else []
                coarsest[name] = max((s for s in scales if s is not None), default=None)
                # "the storage it left": of the last port on the way that has one, whatever its label.
                left[name] = next((s for _, s in moved if s is not None), None)
                left[name] = self.spec.get((kernel.name, "out", i), left[name])
                left[name] = PortType(pin.storage) if pin else left[name]
        for n in self.graph.outputs:
            found += [self._loss(n, coarsest.get(n), left.get(n), None, 0)]
        return [loss for loss in found if loss is not None]

    def _loss(self, name, worst, spec, kernel, i):
        extent = self.required.get((kernel.name, "in", i)) if kernel else self.range[name]
        if worst is None or spec is None or extent is None:
            return None
        own = units(label_of_range(extent, spec)[0])
        return (
            (kernel.name if kernel else "@", i, name),
            self.graph.values[name].elements,
            max(0, worst - own),
        )

    def _rescales(self, labels):
        """(price in 1/1024, whether it counts) of each rescale."""
        found = []
        for name in self.graph.values:
            if name in self.graph.constants or (name not in self.writer and name not in self.graph.inputs):
                continue
            elements = self.graph.values[name].elements
            c, pin = self._definition(name), self.pin[name]
            made = None
            if c is not None:
                writer = self.writer[name]
                spec = self.spec[writer.name, "out", writer.outputs.index(name)]
                made = stored(labels[c], spec.storage)
            elif name in self.graph.inputs:
                made = pin
            uses = [(pin, 1)] * (name in self.graph.outputs)
            for kernel in self.kernels:
                for i, read in enumerate(kernel.inputs):
                    if read == name:
                        use = self.class_of.get((kernel.name, "in", i))
                        label = labels[use] if use is not None else None
                        store = self.spec[kernel.name, "in", i].storage if label else None
                        uses.append((stored(label, store), kernel.trip_count))
            if not uses:
                continue
            base = pin or (None if name in self.none else made)
            if base != made:
                found.append(self._change(made, base, elements * max(t for _, t in uses)))
            for wanted in {kind for kind, _ in uses if kind != base}:
                trips = max(times for kind, times in uses if kind == wanted)
                found += [self._change(base, wanted, elements * trips)]
        return found

    def _change(self, a, b, elements):
        costs = self.target.costs
        if a is None or b is None:
            return elements * round(1024 * (costs.quantize if a is None else costs.dequantize)), False
        prices = [0.0]
        prices += [costs.requantize] if abs(a.scale - b.scale) > 1e-6 * max(a.scale, b.scale) else []
        prices += [costs.widen] if b.storage.bits > a.storage.bits else []
        prices += [costs.narrow] if b.storage.bits < a.storage.bits else []
        moved = a.zero_point != b.zero_point or a.storage.signed != b.storage.signed
        prices += [costs.zero_point] if moved else []
        clamped = a.storage.bits == b.storage.bits and not (
            a.storage.signed == b.storage.signed
            and b.storage.qmin <= a.storage.qmin <= a.storage.qmax <= b.storage.qmax
        )
        prices += [costs.clamp] if clamped else []
        return elements * round(1024 * max(prices)), len(prices) > 1

    def price(self, labels):
        """(price in 1/1024, rescales, elements x lost in 1/1024) of class -> label (None: float)."""
        finest = {
            c: None if None in options else min(options, key=lambda x: units(x[0]))
            for c, options in self.labels.items()
        }
        # Data that is nowhere stored loses nothing.
        unavoidable = {key: lost for key, _, lost in self._losses(finest)}
        costs = self.target.costs
        changes = self._rescales(labels)
        total, weighted = sum(price for price, _ in changes), 0
        for key, elements, lost in self._losses(labels):
            paid = lost - unavoidable.get(key, 0) - round(1024 * costs.free_bits)
            total += round(elements * costs.bit_price * max(0, paid))
            weighted += elements * lost
        return total, sum(counts for _, counts in changes), weighted

    def least(self):
        """Try all labellings; groups that share neither a value nor a mover price independently."""
        links = self._value_links()
        links += [
            [c for c, k in enumerate(self.classes) if k[0] is kernel]
            for kernel in self.kernels
            if self._moves(kernel)
        ]
        links += [self._through(name) for name in self.graph.values]
        groups = self._partition(links)
        if any(math.prod(len(self.labels[c]) for c in group) > LIMIT for group in groups):
            raise TooBig
        labels = {c: options[0] for c, options in self.labels.items()}
        for group in groups:
            best = None
            for chosen in itertools.product(*(self.labels[c] for c in group)):
                trial = labels | dict(zip(group, chosen, strict=True))
                price = self.price(trial)
                if best is None or price < best[0]:
                    best = price, trial
            labels = best[1]
        self.best = labels
        return self.price(labels)

    def _through(self, name):
        """Classes around one value, and behind it those of float movers' results."""
        found = [c for c in (self._definition(name), *self._use_classes(name)) if c is not None]
        for kernel in self.kernels:
            if name in kernel.inputs and self._moves(kernel) and kernel.name in self.float:
                found += [c for n in kernel.outputs for c in self._through(n)]
        return found
