"""What a search asks kernels for: every option is one that a plan can have."""

from functools import cache

import numpy as np
import pytest

import planner
from planner.ir.kernel_requests import with_wanted
from planner.plan_model import plan as plan_model
from planner.plan_search.measuring import bench_of, measured_table
from planner.plan_search.options import levels_of
from planner.plan_search.trials import State
from tests.formats.plans import model, op

RNG = np.random.default_rng(4)


@cache
def attention():
    """Attention over a batch, with products of two activations and float ops between them."""
    shapes = dict.fromkeys(("q", "k", "v", "m", "n"), (1, 6, 16))
    shapes |= {"t": (1, 16, 6), "s": (1, 6, 6), "p": (1, 6, 6)}
    ops = [op("MatMul", f"x w{name}", name) for name in "qkv"]
    ops += [
        op("Transpose", "k", "t", perm=[0, 2, 1]),
        op("MatMul", "q t", "s"),
        op("Softmax", "s", "p", axis=-1),
        op("MatMul", "p v", "m"),
        op("Erf", "m", "n"),
        op("MatMul", "n wq", "y"),
    ]
    graph = model(
        ops,
        inputs={"x": (1, 6, 16)},
        outputs={"y": (1, 6, 16)},
        constants={f"w{name}": RNG.normal(size=(16, 16)).astype(np.float32) / 4 for name in "qkv"},
        shapes=shapes,
    )
    samples = tuple({"x": RNG.normal(size=(1, 6, 16)).astype(np.float32)} for _ in range(3))
    return planner.annotate(graph, stats=planner.calibrate(graph, samples)), samples


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "litert-int8", "qnn-htp", "stablehlo"])
def test_every_option_can_be_asked_for_by_name(target):
    """A level changes kernels for their neighbours' sake, too: they are asked for what they have there."""
    ready, samples = attention()
    device = planner.load_target(target)
    table = measured_table(bench_of(ready, device, samples), State("", None), samples)
    asked = [(name, option) for name, options in table.kernels.items() for option in options if option.wish]
    assert asked
    for name, option in asked:
        plan = plan_model(with_wanted(ready, {name: option.wish}), device)
        stored = [str(getattr(port.type, "storage", "float")) for port in plan.kernels[name].outputs]
        assert stored == [option.stores[port.value] for port in plan.kernels[name].outputs]


@cache
def hard_swish():
    """A hard swish spelled out between convolutions: rows take its parts, the level of float the block."""
    shape = (1, 4, 5, 5)
    ops = [
        op("Conv", "x w", "a"),
        op("Add", "a three", "b"),
        op("Clip", "b zero six", "c"),
        op("Mul", "a c", "d"),
        op("Mul", "d sixth", "e"),
        op("Conv", "e w", "y"),
    ]
    numbers = {
        "zero": np.float32(0),
        "six": np.float32(6),
        "three": np.float32([3]),
        "sixth": np.float32([1 / 6]),
    }
    graph = model(
        ops,
        inputs={"x": shape},
        outputs={"y": shape},
        constants={
            "w": RNG.normal(size=(4, 4, 1, 1)).astype(np.float32),
            **numbers,
        },
        shapes=dict.fromkeys("abcde", shape),
    )
    samples = tuple({"x": RNG.normal(size=shape).astype(np.float32)} for _ in range(3))
    return planner.annotate(graph, stats=planner.calibrate(graph, samples)), samples


def test_parts_of_a_block_that_a_level_keeps_whole_may_be_float():
    """The level of float has one kernel there, named as the first of the parts that integers have."""
    ready, samples = hard_swish()
    device = planner.load_target("onnxruntime-cpu")
    table = measured_table(bench_of(ready, device, samples), State("", None), samples)
    whole = table.levels["float"].kernels["op_b"]
    assert [port.value for port in whole.outputs] != [
        port.value for port in table.base.kernels["op_b"].outputs
    ]
    for options in table.kernels.values():
        assert any(set(option.stores.values()) == {"float"} and not any(option.noise) for option in options)
    assert planner.search(ready, device, samples, goal="sqnr=90", trials=4).trials


TWO_SIGNS = """apiVersion: planner/v1
kind: Target
id: two
version: 1.0.0
types: {w: {storage: i8, symmetric: true}}
kernels:
  - {kernel: MatMul, in: {a: {storage: u8}, b: w}, out: {y: {storage: u8}}}
  - {kernel: MatMul, in: {a: {storage: i8}, b: w}, out: {y: SECOND}}
"""


@pytest.mark.parametrize(
    ("second", "levels"),
    [
        ("{storage: i8}", {"", "float", "u8"}),  # no level of i8
        ("{storage: i8, symmetric: true}", {"", "float", "i8"}),  # coarser steps, another zero point
        ("{storage: i16}", {"", "float", "i16"}),
    ],
)
def test_a_row_of_the_other_sign_is_nothing_to_choose(second, levels):
    ready, _ = attention()
    device = planner.load_target(TWO_SIGNS.replace("SECOND", second))
    assert {level for level in levels_of(ready, device) if "{" not in level} == levels
