"""Mutants of plans with every kind of type: per axis, blocks, floats, signs, fixed and derived ports.

Each port of each plan is given other types, its values and log forged to agree; every mutant is refused at
that port, or at one whose rule it breaks.
"""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import Op, model_digest
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from tests.plans.planned import altered, forged, ports_of
from tests.plans.retypes import inexact, narrow, one_less, outside, times, zeros
from tests.propagation.small import graph_of, target_of

TARGET = target_of(
    """
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: join, in: {xs*: "*"}, out: {y: "*"}, rules: [{same_scale: [xs, y]}]}
- {kernel: depthwise, in: {x: C8, w: w8}, out: {y: C8}, axis: {x: 1, w: 0, y: 1}}
- {kernel: grouped, in: {x: a8, w: G4}, out: {y: a8}}
- {kernel: signs, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: norm, in: {x: "*"}, out: {y: "*"}, float: bf16}
- {kernel: lut, in: {x: a8}, out: {y: a8}, rules: [{derive: TWICE}]}
- {kernel: soft, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]}
""".replace("C8", "{storage: i8, granularity: axis}")
    .replace("G4", "{storage: i4, granularity: block, block_size: [2], symmetric: true}")
    .replace("TWICE", '{port: y, scale: "x.scale * 2", zero_point: "-128"}')
)
AXIS = "!quant.uniform<i8:f32:1, {0.5,0.25}>"
BLOCKS = "!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.125, 1.0}}>"
RANGE = "!quant.calibrated<f32<-1.0:1.0>>"


def made(values, kernels, outputs, shapes, ops):
    """A graph with the op of each kernel: name -> (type, attributes)."""
    graph = graph_of(values, kernels, outputs=outputs, shapes=shapes)
    regions = []
    for region in graph.regions:
        kind, attributes = ops.get(region.name, ("", {}))
        inner = (Op(f"{region.name}_op", kind, region.inputs, region.outputs, attributes),) if kind else ()
        regions.append(replace(region, ops=inner))
    return replace(graph, regions=tuple(regions))


def per_axis():
    """Through two transposes and a concat along the axis into a depthwise kernel."""
    shapes = {"x": (3, 2), "t": (2, 3), "u": (3, 2), "c": (3, 4), "y": (3, 4)}
    values = {"x": AXIS, "t": "", "u": "", "c": "", "w": np.eye(4, dtype=np.float32), "y": RANGE}
    kernels = [("there", "view", "x", "t"), ("back", "view", "t", "u"), ("cat", "join", "x u", "c")]
    kernels += [("dw", "depthwise", "c w", "y")]
    turn = ("Transpose", {"perm": (1, 0)})
    return made(values, kernels, "y", shapes, {"there": turn, "back": turn, "cat": ("Concat", {"axis": 1})})


def blocks():
    """A value in blocks through a transpose; a weight in blocks."""
    rows = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
    values = {"x": BLOCKS, "t": "", "a": RANGE, "w": rows, "y": RANGE}
    shapes = {"x": (2, 4), "t": (4, 2), "a": (1, 4), "y": (1, 3)}
    kernels = [("there", "view", "x", "t"), ("fc", "grouped", "a w", "y")]
    ops = {"there": ("Transpose", {"perm": (1, 0)}), "fc": ("MatMul", {})}
    return made(values, kernels, "t y", shapes, ops)


def floats():
    """A row that runs in bf16, a value kept in it, and weights of one bit."""
    weights = np.array([[0.25, -0.25], [-0.25, 0.25]], np.float32)
    values = {"x": RANGE, "w": weights, "a": RANGE, "b": f"{RANGE} & bf16", "y": RANGE, "z": RANGE}
    kernels = [("k1", "signs", "x w", "a"), ("n", "norm", "a", "b"), ("k2", "soft", "b", "y")]
    kernels += [("k3", "lut", "y", "z")]
    shapes = {"x": (1, 2), "a": (1, 2), "b": (1, 2), "y": (1, 2), "z": (1, 2)}
    graph = made(values, kernels, "z", shapes, {"k1": ("Gemm", {"transB": 1})})
    signs = replace(graph.values["w"], facts=(parse_type("!quant.bipolar<f32, 0.25>"),))
    return replace(graph, values={**graph.values, "w": signs})


GRAPHS = {"per axis": per_axis(), "blocks": blocks(), "floats": floats()}
PLANS = {name: propagate(graph, TARGET, model=model_digest(graph)) for name, graph in GRAPHS.items()}


def moved_axis(kind):
    return altered(kind, axis=None if kind.axis is None else 1 - kind.axis)


def reversed_slices(kind):
    return altered(kind, scales=kind.scales[::-1], zero_points=kind.zero_points[::-1])


def one_scale(kind):
    return altered(
        kind, scales=(max(kind.scales),), zero_points=kind.zero_points[:1], axis=None, blocks=(), grid=()
    )


def other_blocks(kind):
    return altered(kind, blocks=tuple((axis, size * 2) for axis, size in kind.blocks))


def last_slice(kind):
    return altered(kind, scales=(*kind.scales[:-1], kind.scales[-1] * 2))


WRONG = {
    "axis moved": moved_axis,
    "bf16": lambda kind: FloatType("f16" if isinstance(kind, FloatType) else "bf16"),
    "blocks doubled": other_blocks,
    "float": lambda _: None,
    "half a step": inexact,
    "last slice doubled": last_slice,
    "one scale": one_scale,
    "order reversed": reversed_slices,
    "scale doubled": times(2.0),
    "slice less": one_less,
    "storage narrower": narrow,
    "zero point moved": zeros(1),
    "zero point outside": outside,
}


def free(plan, port):
    """Ports whose type is a choice: another one would be a right plan too."""
    if port.address == "dw.in[0]":
        return True
    constant = port.value in plan.graph.constants
    sliced = isinstance(port.type, Uniform) and not port.type.is_per_tensor
    ruled = port.address in ("k2.out[0]", "k3.out[0]")
    return not constant and not sliced and not ruled and not isinstance(port.type, FloatType)


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_itself_passes(name):
    check(PLANS[name], GRAPHS[name], TARGET)


def mutants(name):
    plan = PLANS[name]
    for address, port in ports_of(plan).items():
        for change, wrong in WRONG.items():
            if port.type is None or (isinstance(port.type, FloatType) and change not in ("bf16", "float")):
                continue
            kind = wrong(port.type)
            same = kind == port.type or (isinstance(kind, Uniform) and free(plan, port) and change in CHOICES)
            if not same:
                yield address, change, kind


CHOICES = ("last slice doubled", "one scale", "order reversed", "scale doubled", "zero point moved")
"""What a free port might as well be."""


@pytest.mark.parametrize("name", PLANS)
def test_every_mutant_is_refused_near_its_port(name):
    """At the port itself, or at a port of the same kernel whose rule the lie breaks."""
    plan, refused = PLANS[name], 0
    for address, change, kind in mutants(name):
        kernel = address.rpartition(".")[0]
        broken = forged(plan, {address: kind})
        with pytest.raises(PlanInvalid) as caught:
            check(broken, GRAPHS[name], TARGET)
        assert caught.value.port.startswith(kernel), (address, change, caught.value.message)
        refused += 1
    assert refused >= 40


@pytest.mark.parametrize("model", [True, False], ids=["with_the_model", "without"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_scales_are_followed_through_no_resize_that_computes(mode, model):
    """Where elements come from is not known of it, so that its ports must have one type."""
    shapes = {"x": (3, 2), "y": (3, 2)}
    grow = {"grow": ("Resize", {"mode": mode})}
    graph = made({"x": AXIS, "y": AXIS}, [("grow", "view", "x", "y")], "y", shapes, grow)
    plan, kind = propagate(graph, TARGET, model=model_digest(graph)), parse_type(AXIS)
    broken = forged(plan, {"grow.in[0]": kind, "grow.out[0]": last_slice(kind)})
    with pytest.raises(PlanInvalid) as caught:
        check(broken, graph if model else None)
    assert "same_scale" in caught.value.message
