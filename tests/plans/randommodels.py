"""Random models of ONNX operators, calibrated and annotated, that shipped targets have rows for.

A model is a function of its seed and size, as `tests.propagation.graphs` are: images of a few channels go
through operators that compute, move, join and split; some values get a pin (per tensor or per axis), an Any
or a None.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.formats.onnx.read import read_onnx
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


class Build:
    """A model under construction: its net, and the images known so far with their shapes."""

    def __init__(self, seed: int) -> None:
        self.random, self.net = seeded(seed), Net(seed % 1000)
        self.known: list[tuple[str, Shape]] = []

    def add(self, name: str, shape: Shape) -> None:
        """Make a value known."""
        self.known.append((name, shape))

    def pick(self, *, rank: int = 4) -> tuple[str, Shape]:
        """Draw one of the known values of a rank."""
        return self.random.choice([item for item in self.known if len(item[1]) == rank])


def conv(build: Build) -> None:
    x, (n, c, h, w) = build.pick()
    out, k = build.random.choice((2, 3, 4)), build.random.choice((1, 3))
    group = c if build.random.random() < 0.2 else 1
    out = c if group > 1 else out
    y = build.net.conv(x, c, out, k, group=group)
    y = build.net.op("Relu", y) if build.random.random() < 0.4 else y
    build.add(y, (n, out, h, w))


def unary(build: Build) -> None:
    x, shape = build.pick()
    build.add(build.net.op(build.random.choice(UNARY), x), shape)


def binary(build: Build) -> None:
    x, shape = build.pick()
    y, _ = build.random.choice([item for item in build.known if item[1] == shape])
    y = build.net.const(build.net.vector_data((1, shape[1], 1, 1))) if build.random.random() < 0.2 else y
    kind = build.random.choice(("Add", "Add", "Mul", "Sub", "Max"))
    build.add(build.net.op(kind, x, y), shape)


def concat(build: Build) -> None:
    x, shape = build.pick()
    others = [item for item in build.known if len(item[1]) == 4 and item[1][2:] == shape[2:]]
    parts = [(x, shape), *(build.random.choice(others) for _ in range(build.random.choice((1, 2))))]
    channels = sum(part[1][1] for part in parts)
    if channels <= 8:
        y = build.net.op("Concat", *(name for name, _ in parts), axis=1)
        build.add(y, (shape[0], channels, *shape[2:]))


def split(build: Build) -> None:
    x, (n, c, h, w) = build.pick()
    if c >= 2:
        sizes, out = (1, c - 1), [build.net.name("s") for _ in "ab"]
        names = build.net.op("Split", x, build.net.ints(*sizes), out=out, axis=1)
        for name, size in zip(names, sizes, strict=True):
            build.add(name, (n, size, h, w))


def pool(build: Build) -> None:
    x, shape = build.pick()
    kind = build.random.choice(("MaxPool", "AveragePool"))
    build.add(build.net.op(kind, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), shape)


def view(build: Build) -> None:
    x, (n, c, h, w) = build.pick()
    kind = build.random.choice(("Transpose", "Reshape", "Slice", "Pad"))
    if kind == "Transpose":
        build.add(build.net.op(kind, x, perm=[0, 1, 3, 2]), (n, c, w, h))
    elif kind == "Reshape":
        build.add(build.net.op(kind, x, build.net.ints(n, h, c, w)), (n, h, c, w))
    elif kind == "Slice":
        ends = [build.net.ints(0), build.net.ints(1), build.net.ints(1)]
        build.add(build.net.op(kind, x, *ends), (n, 1, h, w))
    else:
        y = build.net.op(kind, x, build.net.ints(0, 1, 0, 0, 0, 0, 0, 0))
        build.add(y, (n, c + 1, h, w))


def dense(build: Build) -> None:
    x, shape = build.pick()
    rows = int(np.prod(shape[1:]))
    flat = build.net.op("Flatten", x)
    y = build.net.dense(flat, rows, 4)
    build.add(build.net.op("Reshape", y, build.net.ints(1, 4, 1, 1)), (1, 4, 1, 1))


def product(build: Build) -> None:
    x, (n, c, h, w) = build.pick()
    if build.random.random() < 0.5:
        build.add(build.net.op("MatMul", x, build.net.weight(w, w)), (n, c, h, w))
    else:
        y = build.net.op("Transpose", x, perm=[0, 1, 3, 2])
        build.add(build.net.op("MatMul", x, y), (n, c, h, h))


Step = Callable[[Build], None]
STEPS: tuple[Step, ...] = (
    *(conv,) * 4,
    *(unary,) * 3,
    *(binary,) * 3,
    *(concat,) * 2,
    split,
    *(pool,) * 2,
    *(view,) * 3,
    dense,
    product,
)


def random_model(
    seed: int, steps: int, *, facts: float = 0.15, kinds: Sequence[Step] = STEPS, opset: int = 17
) -> Graph:
    """Make a calibrated model.

    Args:
      facts: how likely a value has a pin, an Any or a None.
      kinds: what a step may add.
    """
    build = Build(seed)
    for _ in range(build.random.choice((1, 1, 2))):
        build.add(build.net.input(build.net.name("x"), SHAPE), SHAPE)
    inputs = len(build.known)
    while len(build.known) < inputs + steps:
        build.random.choice(kinds)(build)
    read = {name for node in build.net.nodes for name in node.input}
    ends = [item for item in build.known[inputs:] if item[0] not in read or build.random.random() < 0.1]
    for name, shape in ends or build.known[-1:]:
        build.net.output(name, shape)
    graph = read_onnx(build.net.data(opset=opset))
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
