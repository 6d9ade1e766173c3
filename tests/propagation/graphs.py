"""Random annotated graphs: every rule kind, pins, Any, None, float islands, unknown ranges, constants.

A graph is a function of its seed and size, so hypothesis and plain loops share it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.ir.types.qtypes import AnyType, Calibrated, NoneType, QType, storage, uniform
from planner.ir.validity import validate
from planner.propagation.solver import large_neighbourhoods, solve
from planner.target.load import load_target


def doubled(inputs, outputs, args):
    """A QuantFn: twice the scale of what is read."""
    del args
    kind = inputs[0].type
    return {} if kind is None else {outputs[0].id: replace(kind, scales=(kind.scale * 2,))}


TARGET = load_target(Path(__file__).parent / "rows.yaml")
EVERY_RULE = load_target(Path(__file__).parent / "rows_all.yaml", functions={"doubled": doubled})


def limit_tables(monkeypatch, entries):
    """Elimination has room for tables of so many entries, in rooms of every size."""
    for module in (solve, large_neighbourhoods):
        for name in ("SMALL", "LARGE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, replace(getattr(module, name), table=entries))


OPS = {"concat": "Concat", "concat_u8": "Concat", "view": "Reshape", "relu": "Relu", "pool": "MaxPool"}
OPS |= {"split": "Split", "layout": "Transpose"}
BINARY = ("add", "add_u8", "add_i16", "add_sym", "add_same", "mul_mixed")
MORE_BINARY, MORE_UNARY = ("mul",), ("exp", "table")
UNARY = ("conv", "view", "view", "relu", "pool", "softmax", "asin", "gelu", "layout")
BOUNDS = (0.25, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 8.0, 40.0)


class _Build:
    def __init__(self, random: Random, facts: float, *, every_rule: bool) -> None:
        self.random, self.facts = random, facts
        self.unary = UNARY + MORE_UNARY if every_rule else UNARY
        self.binary = BINARY + MORE_BINARY if every_rule else BINARY
        self.values: dict[str, Value] = {}
        self.constants: dict[str, Constant] = {}
        self.regions: list[Region] = []
        self.known: list[str] = []

    def value(self, *, computed: bool) -> str:
        name = f"v{len(self.values)}"
        shape = (self.random.choice((1, 4, 16, 64)),)
        given: list[QType] = []
        if (computed and self.random.random() < 0.95) or self.random.random() < 0.3:
            lo, hi = self.random.choice(BOUNDS), self.random.choice(BOUNDS)
            low = 0.0 if self.random.random() < 0.3 else -lo
            given.append(Calibrated((low,), (hi,)))
        if self.random.random() < self.facts:
            given.append(self.wish())
        self.values[name] = Value(name, shape, "f32", tuple(given))
        return name

    def wish(self) -> QType:
        kind = self.random.choice(("pin", "pin", "pin", "none", "any"))
        if kind == "none":
            return NoneType()
        if kind == "any":
            return AnyType(storage(self.random.choice(("i8", "i4", "i16"))))
        store = storage(self.random.choice(("i8", "i8", "u8", "i16")))
        zero = 0 if store.bits == 16 else self.random.choice((0, 3)) + (128 if not store.signed else 0)
        return uniform(store, self.random.choice((0.01, 0.02, 0.025, 0.5)), zero)

    def constant(self, shape: tuple[int, ...]) -> str:
        name = f"c{len(self.values)}"
        data = np.random.default_rng(self.random.randrange(1 << 30)).normal(size=shape)
        self.values[name] = Value(name, shape)
        self.constants[name] = Constant(data.astype(np.float32))
        return name

    def kernel(self) -> None:
        pick = self.random.random()
        if pick < 0.55:
            kind, inputs = self.random.choice(self.unary), [self.random.choice(self.known)]
        elif pick < 0.75:
            kind = self.random.choice(self.binary)
            inputs = [self.random.choice(self.known) for _ in range(2)]
        elif pick < 0.9:
            kind = self.random.choice(("concat", "concat", "concat_u8"))
            inputs = [self.random.choice(self.known) for _ in range(self.random.choice((2, 2, 3)))]
        elif pick < 0.95:
            kind, inputs = "pad", [self.random.choice(self.known), self.constant(())]
        else:
            kind, inputs = "split", [self.random.choice(self.known)]
        if kind == "conv":
            inputs.append(self.constant((3, 2)))
            inputs += [self.constant((3,))] if self.random.random() < 0.5 else []
        computed = kind not in OPS and kind != "pad"
        outputs = [self.value(computed=computed) for _ in range(2 if kind == "split" else 1)]
        name = f"k{len(self.regions)}"
        op = OPS.get(kind)
        ops = (Op(f"{name}_op", op, tuple(inputs), tuple(outputs)),) if op else ()
        trips = 3 if self.random.random() < 0.05 else 1
        self.regions.append(Region(name, kind, tuple(inputs), tuple(outputs), ops, trip_count=trips))
        self.known += outputs


def seeded(seed: int) -> Random:
    """A source of choices that is the same on every machine."""
    return Random(seed)  # noqa: S311 - no secrets here


def random_graph(seed: int, n_kernels: int, *, facts: float = 0.15, every_rule: bool = False) -> Graph:
    """Make a valid graph of `n_kernels` regions.

    Args:
      facts: how likely a value has a pin, None or Any.
      every_rule: with kernels that only `EVERY_RULE` has rows for.
    """
    random = seeded(seed)
    build = _Build(random, facts, every_rule=every_rule)
    inputs = tuple(build.value(computed=True) for _ in range(random.choice((1, 1, 2))))
    build.known += inputs
    for _ in range(n_kernels):
        build.kernel()
    read = {name for region in build.regions for name in region.inputs}
    ends = [name for name in build.known if name not in read and name not in inputs]
    outputs = [name for name in ends if random.random() < 0.85]
    outputs += [name for name in build.known if name in read and random.random() < 0.1]
    return validate(
        Graph(
            name="random",
            values=build.values,
            ops=(),
            inputs=inputs,
            outputs=tuple(dict.fromkeys(outputs)) or (build.known[-1],),
            constants=build.constants,
            regions=tuple(build.regions),
        )
    )


def renamed(graph: Graph, names: Sequence[str], kernels: Sequence[str]) -> Graph:
    """The same graph under other names: one per value in order of `graph.values`, one per region."""
    to = dict(zip(graph.values, names, strict=True)) | {"": ""}

    def region(old: Region, name: str) -> Region:
        ops = tuple(
            replace(
                op,
                name=f"{name}_{op.name}",
                inputs=tuple(to.get(n, f"{name}_{n}") for n in op.inputs),
                outputs=tuple(to.get(n, f"{name}_{n}") for n in op.outputs),
            )
            for op in old.ops
        )
        sides = tuple(to[n] for n in old.inputs), tuple(to[n] for n in old.outputs)
        return replace(old, name=name, inputs=sides[0], outputs=sides[1], ops=ops)

    called = {old.name: new for old, new in zip(graph.regions, kernels, strict=True)}
    return replace(
        graph,
        wanted={called.get(key, key): wanted for key, wanted in graph.wanted.items()},
        values={to[name]: replace(value, name=to[name]) for name, value in graph.values.items()},
        inputs=tuple(to[name] for name in graph.inputs),
        outputs=tuple(to[name] for name in graph.outputs),
        constants={to[name]: data for name, data in graph.constants.items()},
        regions=tuple(region(old, name) for old, name in zip(graph.regions, kernels, strict=True)),
    )
