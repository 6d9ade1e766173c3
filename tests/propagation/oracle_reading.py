"""The oracle's first half: rows, storages, ranges and what uses keep; docs/specification.md, sections 4 and 5
(item 1).

Knows nothing of planner.propagation. It reads a target of one row per kernel whose rules are
same_scale, fixed_scale, free_scale and multiplier_accumulator_scale, and facts per tensor. Raises
`Unclear` where the page leaves a storage open.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from planner.ir.graph import Graph
from planner.ir.types.qtypes import AnyType, Calibrated, NoneType, Uniform
from planner.target.records import Target
from planner.target.rules import expand_ports, same_scale_groups

MOVING = {"Concat", "Reshape", "Relu", "MaxPool", "Split", "Transpose", "Pad"}
ALL = (-math.inf, math.inf)


class Unclear(Exception):
    """The page does not say what happens here."""


def hull(extents):
    known = [e for e in extents if e is not None]
    return (min(e[0] for e in known), max(e[1] for e in known)) if known else None


def cut(extent, to):
    """Every real of `extent` moved to the nearest one of `to`."""
    low, high = to
    return (min(max(extent[0], low), high), min(max(extent[1], low), high))


class Reading:
    """A graph read for a target: which kernels are float, what each port stores, holds and keeps."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph, self.target = graph, target
        self.pin = {n: self._fact(n, Uniform) for n in graph.values}
        self.none = {n for n in graph.values if self._fact(n, NoneType)}
        self.kernels = self._live_kernels()
        self.float = {k.name for k in self.kernels if not self._row_fits(k)}
        self._set_ports()
        while True:
            self._set_ranges()
            gone = {k.name for k in self.kernels if k.name not in self.float and self._lacks_range(k)}
            if not gone:
                break
            self.float |= gone
            self._set_ports()
        self.float |= self._islands()
        self._set_ports()
        self._set_ranges()
        self._set_kept()

    def _fact(self, name, kind):
        return next((f for f in self.graph.values[name].facts if isinstance(f, kind)), None)

    def _live_kernels(self):
        wanted, found = set(self.graph.outputs), []
        for kernel in reversed(self.graph.regions):
            if wanted & set(kernel.outputs):
                wanted |= set(kernel.inputs)
                found.insert(0, kernel)
        return found

    def _row(self, kernel):
        return self.target.rows[kernel.kernel][0]

    def _patterns(self, kernel):
        """(side, index, value name, pattern) of each port."""
        row = self._row(kernel)
        ins, outs = expand_ports(row.inputs, kernel.inputs), expand_ports(row.outputs, kernel.outputs)
        found = [("in", i, n, p) for i, (n, p) in enumerate(zip(kernel.inputs, ins, strict=True))]
        return found + [("out", i, n, p) for i, (n, p) in enumerate(zip(kernel.outputs, outs, strict=True))]

    def _row_fits(self, kernel):
        if kernel.kernel not in self.target.rows:
            return False
        for _, _, name, pattern in self._patterns(kernel):
            wish = self._fact(name, AnyType)
            if wish and pattern.type.storage is not None and pattern.type.storage.bits < wish.bits:
                return False
        return True

    # ports: wildcards

    def _set_ports(self):
        """self.spec[kernel, side, index]: the PortType, float kernels have none."""
        self.spec = {}
        self.writer = {n: k for k in self.kernels for n in k.outputs}
        for kernel in self.kernels:
            if kernel.name in self.float:
                continue
            ports = self._patterns(kernel)
            wild = [p for p in ports if p[3].type.storage is None]
            found = self._wild_storage([p[2] for p in wild]) if wild else None
            for side, i, _, pattern in ports:
                spec = pattern.type
                if spec.storage is None:
                    store = found or self.target.default_port.storage
                    spec = replace(spec, storage=self._wide_enough(store, [p[2] for p in wild]))
                self.spec[kernel.name, side, i] = spec

    def _wide_enough(self, store, names):
        """An Any asks for its bits at every use: where the storage found has fewer, its own is taken."""
        wishes = [wish.storage for n in names if (wish := self._fact(n, AnyType))]
        return max([store, *wishes], key=lambda one: one.range_bits)

    def _wild_storage(self, names):
        pins = [self.pin[n].storage for n in names if self.pin[n]]
        if pins:
            return pins[0]
        for name in names:
            store = self._producer_storage(name)
            if store:
                return store
        wanted = set().union(*(self._reader_storages(n) for n in names))
        if len(wanted) > 1:
            raise Unclear
        return next(iter(wanted), None)

    def _producer_storage(self, name):
        writer = self.writer.get(name)
        if writer is None or writer.name in self.float:
            return None
        spec = self.spec.get((writer.name, "out", writer.outputs.index(name)))
        return spec.storage if spec else None

    def _reader_storages(self, name):
        found = set()
        for kernel in self.kernels:
            if name not in kernel.inputs or kernel.name in self.float:
                continue
            for side, _, value, pattern in self._patterns(kernel):
                if side == "in" and value == name and pattern.type.storage:
                    found.add(pattern.type.storage)
                if side == "out" and pattern.type.storage is None:
                    behind = self.pin[value]
                    found |= {behind.storage} if behind else self._reader_storages(value)
        return found

    # item 1: ranges, kept, required

    def _moves(self, kernel):
        if kernel.name not in self.float and self._row(kernel).computes:
            return False
        if kernel.ops:
            return all(op.type in MOVING for op in kernel.ops)
        groups = () if kernel.name in self.float else self._groups(kernel)
        return len(groups) == 1 and len(groups[0]) == len(kernel.inputs) + len(kernel.outputs)

    def _groups(self, kernel):
        return same_scale_groups(self._row(kernel), len(kernel.inputs), len(kernel.outputs))

    def _relu(self, kernel, extent):
        cuts = extent is not None and any(op.type == "Relu" for op in kernel.ops)
        return cut(extent, (0.0, math.inf)) if cuts else extent

    def _fixed(self, kernel, side, i):
        if kernel.name in self.float:
            return None
        row = self._row(kernel)
        ports = {(s, k): p for s, k, _, p in self._patterns(kernel)}
        for rule in row.rules:
            if rule.kind == "fixed_scale" and rule.args["port"] == ports[side, i].name:
                scale = float(np.float32(Fraction(str(rule.args["scale"]))))
                zero_point = int(rule.args.get("zero_point", 0))
                return Uniform(ports[side, i].type.storage, (scale,), (zero_point,))
        return None

    def _set_ranges(self):
        self.range = {}
        for name in (*self.graph.inputs, *self.graph.constants):
            self.range[name] = self._known(name, None)
            if name in self.graph.constants:
                data = self.graph.constants[name].array
                self.range[name] = (float(np.min(data)), float(np.max(data)))
        for kernel in self.kernels:
            read = (
                self._relu(kernel, hull(self.range[n] for n in kernel.inputs))
                if self._moves(kernel)
                else None
            )
            for i, name in enumerate(kernel.outputs):
                own = self._known(name, self._fixed(kernel, "out", i))
                self.range[name] = cut(own, read) if own and read else own or read

    def _known(self, name, fixed):
        extent = self._fact(name, Calibrated)
        extent = (extent.lo, extent.hi) if extent else None
        for kind in (self.pin[name], fixed):
            if kind:
                extent = cut(extent, (kind.lo, kind.hi)) if extent else (kind.lo, kind.hi)
        return extent

    def _lacks_range(self, kernel):
        return any(
            self.range[name] is None
            for side, i, name, _ in self._patterns(kernel)
            if not self._fixed(kernel, side, i)
        )

    def _islands(self):
        """Movers of several classes, float as a whole: here only where all around them is float."""
        inside = {k.name for k in self.kernels if self._moves(k) and not self._touched(k)}
        while True:
            around = {
                k.name
                for k in self.kernels
                if k.name in inside and all(self._is_float_around(k, name, inside) for name in k.inputs)
                if all(self._is_float_around(k, name, inside) for name in k.outputs)
            }
            if around == inside:
                break
            inside = around
        loose = {k.name for k in self.kernels if k.name not in self.float and not self._is_whole(k)}
        return inside & loose

    def _touched(self, kernel):
        names = (*kernel.inputs, *kernel.outputs)
        sides = [("in", i) for i in range(len(kernel.inputs))] + [
            ("out", i) for i in range(len(kernel.outputs))
        ]
        return any(self.pin[n] or self._fact(n, AnyType) for n in names) or any(
            self._fixed(kernel, *side) for side in sides
        )

    def _is_whole(self, kernel):
        groups = self._groups(kernel)
        present = [n for n in kernel.inputs if n not in self.graph.constants] + list(kernel.outputs)
        return len(groups) == 1 and len(groups[0]) >= len(present)

    def _is_float_around(self, kernel, name, inside):
        """Whether the other ends of one value of a mover are float, or movers that may be."""
        if name in self.graph.constants or (name in self.none and not self.pin[name]):
            return True
        ends = [k for k in self.kernels if name in k.inputs] if name in kernel.outputs else []
        ends += [self.writer[name]] if name in kernel.inputs and name in self.writer else []
        return all(k.name in self.float or k.name in inside for k in ends)

    def _set_kept(self):
        """self.kept[value]; self.required[kernel, side, index]."""
        self.kept, self.use_keeps = {}, {}
        for kernel in reversed(self.kernels):
            for name in kernel.outputs:
                uses = [ALL] * (name in self.graph.outputs)
                for reader in self.kernels:
                    for i, read in enumerate(reader.inputs):
                        uses += [self.use_keeps[reader.name, i]] if read == name else []
                kept, pin = hull(uses), self.pin[name]
                if pin and kept:
                    own = (pin.lo, pin.hi)
                    kept = cut(own, kept) if self._moves(kernel) else own
                self.kept[name] = kept
            for i in range(len(kernel.inputs)):
                keeps = ALL
                fixed = self._fixed(kernel, "in", i)
                if fixed:
                    keeps = (fixed.lo, fixed.hi)
                elif self._moves(kernel):
                    keeps = self._relu(kernel, hull(self.kept[n] for n in kernel.outputs))
                self.use_keeps[kernel.name, i] = keeps
        self.required = {}
        for kernel in self.kernels:
            sides = [("in", i, n, self.use_keeps[kernel.name, i]) for i, n in enumerate(kernel.inputs)]
            sides += [("out", i, n, self.kept[n]) for i, n in enumerate(kernel.outputs)]
            for side, i, name, keeps in sides:
                if self.range[name]:
                    self.required[kernel.name, side, i] = cut(self.range[name], keeps or (0.0, 0.0))
