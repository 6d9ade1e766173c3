"""Random models of ONNX operators, calibrated and annotated, that shipped targets have rows for.

A model is a function of its seed and size, as `tests.propagation.graphs` are: images of a few channels go
through operators that compute, move, join and split; some values get a pin (per tensor or per axis), an Any
or a None.
"""

from dataclasses import replace
from random import Random

import numpy as np

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.ir.graph import Graph, Value
from planner.ir.types.qtypes import (
    AnyType,
    Calibrated,
    NoneType,
    QType,
    Uniform,
    round_scales,
    storage,
    uniform,
)
from planner.onnx.read import read_onnx
from tests.awkward.net import Net
from tests.propagation.graphs import seeded

STORES = (
    ("i8", -128, 127),
    ("i8", -128, 127),
    ("i8", -127, 127),
    ("u8", 0, 255),
    ("i16", -32768, 32767),
    ("i4", -8, 7),
)
UNARY = ("Relu", "Sigmoid", "Tanh", "Erf", "Softmax", "LeakyRelu", "Identity", "Exp", "Abs")
SHAPE = (1, 3, 4, 4)
Shape = tuple[int, ...]


class _Build:
    def __init__(self, seed: int) -> None:
        self.random, self.net = seeded(seed), Net(seed % 1000)
        self.known: list[tuple[str, Shape]] = []

    def add(self, name: str, shape: Shape) -> None:
        self.known.append((name, shape))

    def pick(self, *, rank: int = 4) -> tuple[str, Shape]:
        return self.random.choice([item for item in self.known if len(item[1]) == rank])

    def step(self) -> None:
        self.random.choice(STEPS)(self)

    def conv(self) -> None:
        x, (n, c, h, w) = self.pick()
        out, k = self.random.choice((2, 3, 4)), self.random.choice((1, 3))
        group = c if self.random.random() < 0.2 else 1
        out = c if group > 1 else out
        y = self.net.conv(x, c, out, k, group=group)
        y = self.net.op("Relu", y) if self.random.random() < 0.4 else y
        self.add(y, (n, out, h, w))

    def unary(self) -> None:
        x, shape = self.pick()
        self.add(self.net.op(self.random.choice(UNARY), x), shape)

    def binary(self) -> None:
        x, shape = self.pick()
        y, _ = self.random.choice([item for item in self.known if item[1] == shape])
        y = self.net.const(self.net.vector_data((1, shape[1], 1, 1))) if self.random.random() < 0.2 else y
        kind = self.random.choice(("Add", "Add", "Mul", "Sub", "Max"))
        self.add(self.net.op(kind, x, y), shape)

    def concat(self) -> None:
        x, shape = self.pick()
        others = [item for item in self.known if len(item[1]) == 4 and item[1][2:] == shape[2:]]
        parts = [(x, shape), *(self.random.choice(others) for _ in range(self.random.choice((1, 2))))]
        channels = sum(part[1][1] for part in parts)
        if channels <= 8:
            y = self.net.op("Concat", *(name for name, _ in parts), axis=1)
            self.add(y, (shape[0], channels, *shape[2:]))

    def split(self) -> None:
        x, (n, c, h, w) = self.pick()
        if c >= 2:
            sizes, out = (1, c - 1), [self.net.name("s") for _ in "ab"]
            names = self.net.op("Split", x, self.net.ints(*sizes), out=out, axis=1)
            for name, size in zip(names, sizes, strict=True):
                self.add(name, (n, size, h, w))

    def pool(self) -> None:
        x, shape = self.pick()
        kind = self.random.choice(("MaxPool", "AveragePool"))
        self.add(self.net.op(kind, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), shape)

    def view(self) -> None:
        x, (n, c, h, w) = self.pick()
        kind = self.random.choice(("Transpose", "Reshape", "Slice", "Pad"))
        if kind == "Transpose":
            self.add(self.net.op(kind, x, perm=[0, 1, 3, 2]), (n, c, w, h))
        elif kind == "Reshape":
            self.add(self.net.op(kind, x, self.net.ints(n, h, c, w)), (n, h, c, w))
        elif kind == "Slice":
            ends = [self.net.ints(0), self.net.ints(1), self.net.ints(1)]
            self.add(self.net.op(kind, x, *ends), (n, 1, h, w))
        else:
            y = self.net.op(kind, x, self.net.ints(0, 1, 0, 0, 0, 0, 0, 0))
            self.add(y, (n, c + 1, h, w))

    def dense(self) -> None:
        x, shape = self.pick()
        rows = int(np.prod(shape[1:]))
        flat = self.net.op("Flatten", x)
        y = self.net.dense(flat, rows, 4)
        self.add(self.net.op("Reshape", y, self.net.ints(1, 4, 1, 1)), (1, 4, 1, 1))

    def product(self) -> None:
        x, (n, c, h, w) = self.pick()
        if self.random.random() < 0.5:
            self.add(self.net.op("MatMul", x, self.net.weight(w, w)), (n, c, h, w))
        else:
            y = self.net.op("Transpose", x, perm=[0, 1, 3, 2])
            self.add(self.net.op("MatMul", x, y), (n, c, h, h))


STEPS = (
    *(_Build.conv,) * 4,
    *(_Build.unary,) * 3,
    *(_Build.binary,) * 3,
    *(_Build.concat,) * 2,
    _Build.split,
    *(_Build.pool,) * 2,
    *(_Build.view,) * 3,
    _Build.dense,
    _Build.product,
)


def random_model(seed: int, steps: int, *, facts: float = 0.15) -> Graph:
    """Make a calibrated model.

    Args:
      facts: how likely a value has a pin, an Any or a None.
    """
    build = _Build(seed)
    for _ in range(build.random.choice((1, 1, 2))):
        build.add(build.net.input(build.net.name("x"), SHAPE), SHAPE)
    inputs = len(build.known)
    while len(build.known) < inputs + steps:
        build.step()
    read = {name for node in build.net.nodes for name in node.input}
    ends = [item for item in build.known[inputs:] if item[0] not in read or build.random.random() < 0.1]
    for name, shape in ends or build.known[-1:]:
        build.net.output(name, shape)
    graph = read_onnx(build.net.data())
    rng = np.random.default_rng(seed)
    samples = [{name: images(rng) for name in graph.inputs} for _ in range(2)]
    graph = annotate(graph, stats=calibrate(graph, samples))
    return _wished(graph, build.random, facts)


def images(rng: np.random.Generator) -> np.ndarray:
    """Numbers for one input."""
    return rng.standard_normal(SHAPE).astype(np.float32)


def _wished(graph: Graph, random: Random, facts: float) -> Graph:
    values = dict(graph.values)
    for name, value in graph.values.items():
        if not value.is_float or random.random() > facts or value.shape is None:
            continue
        own = value.facts
        if name in graph.constants and random.random() < 0.6:
            continue
        if random.random() < 0.1:
            own = ()
        values[name] = replace(value, facts=(*own, *wish(value, random, constant=name in graph.constants)))
    return replace(graph, values=values)


def wish(value: Value, random: Random, *, constant: bool) -> tuple[QType, ...]:
    """A pin, an Any or a None for a value, or nothing."""
    kind = random.choice(("pin", "pin", "axis", "none", "any", "any"))
    name, low, high = random.choice(STORES)
    store = storage(name, low, high)
    seen = next((fact for fact in value.facts if isinstance(fact, Calibrated)), None)
    lo, hi = (seen.lo, seen.hi) if seen is not None else (-1.0, 1.0)
    scale = max(abs(lo), abs(hi), 0.01) * random.choice((0.5, 1, 1, 2)) / max(high, -low)
    zero = 0 if store.signed else (high + 1) // 2
    if kind == "none":
        return (NoneType(),)
    if kind == "any":
        return (AnyType(store),)
    if kind == "axis" and value.shape and len(value.shape) > 1:
        axis = 0 if constant else 1
        count = value.shape[axis]
        scales = round_scales([scale * (1 + i / 4) for i in range(int(count))], "f32")
        return (Uniform(store, scales, (zero,) * len(scales), "f32", axis),)
    return (uniform(store, float(np.float32(scale)), zero),)
