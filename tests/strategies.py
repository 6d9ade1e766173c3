"""Hypothesis strategies: random types, annotated graphs and plans, small and hostile in their names."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from planner.ir.graph import Constant, Graph, Op, Opaque, Region, Value
from planner.ir.types.fit import misfit
from planner.ir.types.qtypes import (
    EXPRESSED,
    AnyType,
    Bipolar,
    Calibrated,
    FloatType,
    NoneType,
    RowMax,
    Storage,
    Uniform,
    WidthRange,
    full_range,
    round_scales,
)
from planner.ir.types.wanted import Wanted
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, Refused, Step, TargetRef, ValuePlan
from planner.target.records import Costs, PortPattern, PortType, Row, Rule

SCALES = st.floats(1e-4, 1e4)
REALS = st.floats(allow_nan=False, allow_infinity=False)
WANTED = {
    'layer*/q"[ü]\n': Wanted(float=True),
    "b": Wanted(),
    "a": Wanted(result=Storage(16, True, -32768, 32767)),
    "": Wanted(inputs=(None, Storage(8, True, -127, 127)), outputs=(FloatType("f32"),)),
}
NASTY = ("", "/a/b", 'q"uote', "back\\slash", "ünï ☃", "x#0", "0", "%x", "a.b", "new\nline", "tab\t", "in[0]")


@st.composite
def storages(draw, max_bits=64):
    bits, signed = draw(st.integers(1, max_bits)), draw(st.booleans())
    low, high = full_range(bits, signed=signed)
    if draw(st.booleans()):
        return Storage(bits, signed, low, high)
    qmin = draw(st.integers(low, high - 1))
    return Storage(bits, signed, qmin, draw(st.integers(qmin + 1, high)))


@st.composite
def uniforms(draw, shapes=("tensor", "axis", "block")):
    store, expressed = draw(storages()), draw(st.sampled_from(EXPRESSED))
    shape = draw(st.sampled_from(shapes))
    axis, blocks, grid = None, (), ()
    count = 1
    if shape == "axis":
        axis, count = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    elif shape == "block":
        grid = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
        axes = sorted(draw(st.sets(st.integers(0, len(grid) - 1))))
        blocks = tuple((a, draw(st.integers(1, 64))) for a in axes)
        count = int(np.prod(grid))
    scales = round_scales([draw(SCALES) for _ in range(count)], expressed)
    if count > 1 and store.qmax - store.qmin > 2 and draw(st.integers(0, 3)) == 0:
        zeros, ranges = draw(slice_ranges(store, count))
        return Uniform(store, scales, zeros, expressed, axis, blocks, grid, ranges)
    zeros = tuple(draw(st.integers(store.qmin, store.qmax)) for _ in range(count))
    return Uniform(store, scales, zeros, expressed, axis, blocks, grid)


@st.composite
def slice_ranges(draw, store, count):
    """Zero points and ranges of slices that differ and span the storage's range."""
    cut = draw(st.integers(store.qmin + 1, store.qmax - 1))
    ranges = [(store.qmin, cut), (cut, store.qmax)]
    while len(ranges) < count:
        low = draw(st.integers(store.qmin, store.qmax - 1))
        ranges.append((low, draw(st.integers(low + 1, store.qmax))))
    ranges = draw(st.permutations(ranges))
    return tuple(draw(st.integers(*pair)) for pair in ranges), tuple(ranges)


@st.composite
def calibrated(draw):
    axis = draw(st.none() | st.integers(0, 3))
    count = 1 if axis is None else draw(st.integers(1, 4))
    pairs = [sorted((draw(REALS), draw(REALS))) for _ in range(count)]
    rows = draw(st.dictionaries(st.integers(0, 4), st.tuples(REALS, st.none() | st.just(7))))
    lo, hi = pairs[0]
    inner = st.lists(st.floats(lo, hi), min_size=2, max_size=2).map(sorted)
    widths = draw(st.dictionaries(st.integers(1, 64), inner, max_size=3)) if axis is None else {}
    return Calibrated(
        tuple(lo for lo, _ in pairs),
        tuple(hi for _, hi in pairs),
        draw(st.sampled_from(EXPRESSED)),
        axis,
        tuple(RowMax(axis, *row) for axis, row in sorted(rows.items())),
        draw(st.booleans()),
        tuple(WidthRange(bits, *widths[bits]) for bits in sorted(widths)),
    )


def types():
    return st.one_of(
        uniforms(),
        st.builds(AnyType, storages(), st.none() | st.sampled_from(EXPRESSED)),
        calibrated(),
        st.just(NoneType()),
        st.sampled_from(EXPRESSED).flatmap(
            lambda name: st.builds(Bipolar, st.just(name), SCALES.map(lambda s: round_scales([s], name)[0]))
        ),
        st.sampled_from(EXPRESSED).map(FloatType),
    )


def facts(max_size=2):
    return st.lists(types(), max_size=max_size).map(tuple)


def arrays():
    dtypes = ("float32", "float16", "float64", "int8", "int64", "uint8", "bool")
    return st.tuples(
        st.sampled_from(dtypes), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 2**32 - 1)
    ).map(lambda a: np.random.default_rng(a[2]).integers(0, 2, a[1]).astype(a[0]))


def attributes():
    leaf = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        st.text(max_size=5),
        st.binary(max_size=5),
        st.builds(Opaque, st.sampled_from(("graph", "blob")), st.binary(max_size=4)),
    )
    keys = st.sampled_from(("alpha", "axis", "array", "float", "dict", "odd key"))
    value = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=2),
        ),
        max_leaves=5,
    )
    return st.dictionaries(keys, value, max_size=2)


def shapes():
    dim = st.one_of(st.integers(0, 5), st.none(), st.sampled_from(("N", "batch size")))
    return st.none() | st.lists(dim, max_size=3).map(tuple)


class _Build:
    """A graph in the making."""

    def __init__(self, draw):
        self.draw = draw
        self.values: dict[str, Value] = {}
        self.taken: set[str] = set()

    def name(self, base):
        name = base + self.draw(st.sampled_from(NASTY))
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def value(self, dtype=None, shape=None, *, with_facts=True):
        name = self.name("v")
        dtype = dtype or self.draw(st.sampled_from(("f32", "f32", "f16", "bf16")))
        shape = self.draw(shapes()) if shape is None else shape
        bare = Value(name, shape, dtype)
        given = self.draw(facts()) if with_facts else ()
        self.values[name] = replace(bare, facts=tuple(fact for fact in given if not misfit(fact, bare)))
        return name

    def port_lists(self, ports):
        given = tuple(
            tuple(fact for fact in self.draw(facts(1)) if not misfit(fact, self.values[name])) if name else ()
            for name in ports
        )
        return given if any(given) and self.draw(st.booleans()) else ()


@st.composite
def graphs(draw, max_regions=4):
    build = _Build(draw)
    inputs = tuple(build.value() for _ in range(draw(st.integers(1, 2))))
    constants = _constants(draw, build)
    known, regions = [*inputs, *constants], []
    for _ in range(draw(st.integers(0, max_regions))):
        ports = tuple(draw(st.lists(st.sampled_from([*known, ""]), min_size=1, max_size=3)))
        outputs = tuple(build.value() for _ in range(draw(st.integers(1, 2))))
        regions.append(
            Region(
                name=build.name("k"),
                kernel=draw(st.sampled_from(("conv2d", "add", "odd kernel"))),
                inputs=ports,
                outputs=outputs,
                ops=_ops(draw, build, ports, outputs, tuple(constants)),
                attributes=draw(attributes()),
                input_facts=build.port_lists(ports),
                output_facts=build.port_lists(outputs),
                trip_count=draw(st.integers(1, 3)),
                reason=draw(st.sampled_from(("", "no fusion takes it"))),
            )
        )
        known += outputs
    if draw(st.booleans()):
        build.value()
    return Graph(
        name=build.name("model"),
        values=build.values,
        ops=(),
        inputs=inputs,
        outputs=tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))),
        constants=constants,
        regions=tuple(regions),
        opsets=draw(st.sampled_from(({}, {"": 21}, {"": 17, "com.microsoft": 1}))),
        notes=draw(st.sampled_from(((), ("dropped\nan Identity",)))),
        wanted=draw(st.sampled_from(({}, {}, WANTED))),
    )


def _constants(draw, build):
    found = {}
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(("array", "range", "axis", "nothing")))
        if kind == "array":
            array = draw(arrays())
            dtypes = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "int64": "i64"}
            name = build.value(
                dtypes.get(array.dtype.name, {"uint8": "u8"}.get(array.dtype.name, "bool")), array.shape
            )
            found[name] = Constant(array)
        elif kind == "range":
            found[build.value(shape=(3, 2))] = Constant(None, (-0.5,), (1e-3,))
        elif kind == "axis":
            found[build.value(shape=(3, 2))] = Constant(None, (-1.0, 0.0), (0.0, 2.5), 1)
        else:
            found[build.value(shape=(4,))] = Constant()
    return found


def _ops(draw, build, ports, outputs, constants):
    if draw(st.booleans()):
        return ()
    inner = build.value(with_facts=False)
    extra = tuple(draw(st.lists(st.sampled_from(constants), max_size=1))) if constants else ()
    first = Op(build.name("o"), "com.microsoft::Odd", (*ports, *extra), (inner, ""), draw(attributes()))
    last = Op(build.name("o"), "Split", (inner,), outputs, captures=ports[:1] if ports[0] else ())
    return first, last


@st.composite
def plans(draw):
    graph = draw(graphs())
    graph = replace(graph, values={name: _of_one_type(value) for name, value in graph.values.items()})
    rows = {row.key: row for row in (_row("conv2d", 41), _row("add", 77), _row("odd kernel", 77))}
    port_types = st.none() | uniforms(("tensor", "axis"))
    kernels = []
    for region in graph.regions:
        if draw(st.integers(0, 5)) == 0:
            continue
        row = draw(st.sampled_from((None, f"{region.kernel}@{41 if region.kernel == 'conv2d' else 77}")))
        sides = {}
        for side, names in (("in", region.inputs), ("out", region.outputs)):
            sides[side] = tuple(
                Port(
                    f"{region.name}.{side}[{i}]",
                    name,
                    _fitting(draw(port_types), graph.values[name]) if row and name else None,
                )
                for i, name in enumerate(names)
            )
        kernels.append(
            KernelPlan(
                region.name,
                region.kernel,
                row,
                None if row else "no row",
                sides["in"],
                sides["out"],
                draw(st.none() | st.integers(1, 40)),
                region.trip_count,
            )
        )
    values = {
        name: ValuePlan(
            draw(port_types), draw(st.floats(0, 8)), draw(st.floats(0, 1)), draw(st.none() | st.just(1))
        )
        for name in graph.values
    }
    step = Step(
        1,
        "k.in[0]",
        "f32",
        "same_scale",
        "t.yaml:77",
        (0,),
        (Refused("i8", 3.5), Refused("i4", float("inf"))),
    )
    costs = Costs(widen=draw(st.sampled_from((0.5, 7.25))), max_bits_lost=draw(st.none() | st.just(2.0)))
    target = TargetRef("t", "1.0.0", "sha256:2", "t.yaml", rows, costs, draw(st.booleans()))
    options = {"strategy": "minimal", **draw(attributes())}
    return Plan(
        "sha256:0",
        "sha256:1",
        target,
        options,
        graph,
        tuple(kernels),
        values,
        (step,),
        3.5,
        False,
        1.25,
        ("clips",),
    )


def _of_one_type(value):
    """The value with one fixed type at most, and no other float: the ports of a plan follow such facts."""
    facts = [fact for fact in value.facts if not isinstance(fact, FloatType)]
    fixed = [fact for fact in facts if not isinstance(fact, AnyType | Calibrated)]
    return replace(value, facts=tuple(fact for fact in facts if fact not in fixed[1:]))


def _fitting(kind, value):
    return None if kind is None or misfit(kind, value) else kind


def _row(kernel, line):
    ports = (PortPattern("x", PortType()), PortPattern("xs", PortType(), optional=True, variadic=True))
    rules = (Rule("same_scale", {"ports": ("x", "y")}, f"t.yaml:{line}"),)
    return Row(kernel, ports, (PortPattern("y", PortType()),), rules, source=f"t.yaml:{line}")
