"""Kernels that a target plans as integers, in its own format: written, and run with our numbers."""

import numpy as np
import pytest

import planner
from planner.formats.table import EXPORTERS
from tests.awkward.net import Net
from tests.soak.structures import Found, Job, run_all, with_all_results

NATIVE = (("litert-int8", "litert"), ("ethos-u55", "litert"), ("tosa-int8", "tosa"))


def padded(value, pads=(0, 0, 1, 2, 0, 0, 2, 1), mode="constant"):
    """Conv, a Pad, Conv; infinity in front of a MaxPool."""
    net = Net(1)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    fill = [] if value is None else [net.const(np.float32(value))]
    x = net.op("Pad", x, net.ints(*pads), *fill, mode=mode)
    if value == -np.inf:
        x = net.op("MaxPool", x, kernel_shape=[3, 3])
    net.conv(x, 4, 2, out="y")
    net.output("y", None)
    return net.data(opset=18)


def product(a, b, *, left=False):
    """A product of a constant and an activation."""
    net = Net(2)
    x = net.op("Tanh", net.input("x", list(b if left else a)))
    w = net.vector_weights(*(a if left else b))
    net.op("MatMul", *((w, x) if left else (x, w)), out="y")
    net.output("y", None)
    return net.data()


def shared(sizes_a, sizes_b):
    """A product of two activations."""
    net = Net(3)
    a, b = net.op("Tanh", net.input("a", list(sizes_a))), net.op("Tanh", net.input("b", list(sizes_b)))
    net.op("Relu", net.op("MatMul", a, b), out="y")
    net.output("y", None)
    return net.data()


def table():
    """An int8 table that a Gather reads, and a product."""
    net = Net(4)
    stored = net.const(net.rng.integers(-127, 128, (7, 4)).astype(np.int8))
    word = net.op("DequantizeLinear", stored, net.const(np.float32(0.01)), net.const(np.int8(0)))
    x = net.op("Gather", word, net.input("ids", [2, 3], 7))
    net.op("MatMul", net.op("Tanh", x), net.op("Transpose", word, perm=[1, 0]), out="y")
    net.output("y", None)
    return net.data()


CASES = {
    "pad with a value": padded(-1.5),
    "pad with a value out of range": padded(70.0),
    "pad with the least": padded(-np.inf),
    "pad and cut with a value": padded(0.7, (0, 0, -1, 2, 0, 0, 2, -1)),
    "pad by reflection": padded(None, mode="reflect"),
    "pad by the edge": padded(None, mode="edge"),
    "constant on the left": product((4, 6), (1, 6, 5), left=True),
    "constant on the left of two": product((4, 6), (2, 6, 5), left=True),
    "constant stack on the left": product((3, 1, 4, 6), (2, 6, 5), left=True),
    "stack on the right": product((2, 4, 6), (2, 6, 5)),
    "wider stack on the right": product((4, 6), (3, 6, 5)),
    "broadcast both": shared((2, 1, 3, 4), (5, 4, 3)),
    "one by a stack": shared((1, 3, 4), (5, 4, 3)),
    "a matrix for all": shared((2, 5, 3, 4), (4, 2)),
    "a vector on the right": shared((2, 3, 4), (4,)),
    "a vector on the left": shared((4,), (2, 4, 3)),
    "vectors": shared((4,), (4,)),
    "a tied table": table(),
}


def assert_written(data, pairs):
    """Plan a model for targets, write it in formats, run it, and compare with the interpreter."""
    graph = planner.load_model(data)
    random = np.random.default_rng(7)
    samples = [{name: drawn(random, graph.values[name]) for name in graph.inputs} for _ in range(2)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    jobs = []
    for target, form in pairs:
        plan = planner.plan(ready, target)
        # Vela's list has no products of activations.
        integers = [kernel for kernel in plan.kernels_in_order if kernel.kernel != "Cast"]
        assert target == "ethos-u55" or all(kernel.row for kernel in integers)
        assert planner.export(ready, plan, form)
        wide = with_all_results(ready, plan)
        jobs.append(Job(0, target, form, *wide, EXPORTERS[form](*wide), samples[1]))
    found = Found()
    run_all(jobs, found)
    assert not found.findings


def drawn(random, value):
    """Numbers of an input: normal, or indices."""
    if value.is_float:
        return random.normal(size=value.shape).astype(np.float32)
    return random.integers(0, 7, value.shape)


@pytest.mark.parametrize("rank", [1, 5])
@pytest.mark.parametrize("kind", ["Equal", "Less", "Add", "Sub"])
def test_one_number_of_more_axes_gives_the_result_its_rank(kind, rank):
    net = Net(9)
    made = net.op(kind, net.input("x", [1, 3, 8, 8]), net.const(np.full((1,) * rank, 0.25, np.float32)))
    net.op("Cast", made, to=1, out="y")
    net.output("y", None)
    assert_written(net.data(), (("stablehlo", "stablehlo-int"), ("stablehlo", "stablehlo")))


@pytest.mark.parametrize("name", CASES)
def test_the_own_format_has_it(name):
    assert_written(CASES[name], NATIVE)


def resized(sizes, scales=(), mode="half_pixel"):
    """Conv, a linear Resize, Conv."""
    net = Net(5)
    x = net.conv(net.input("x", [1, 3, 6, 5]), 3, 4)
    if scales:
        numbers = ("", net.const(np.asarray([1, 1, *scales], np.float32)))
    else:
        numbers = ("", "", net.ints(1, 4, *sizes))
    x = net.op("Resize", x, *numbers, mode="linear", coordinate_transformation_mode=mode)
    net.conv(x, 4, 2, out="y")
    net.output("y", None)
    return net.data()


RESIZES = {
    f"resize to {sizes or scales} by {mode}": resized(sizes, scales, mode)
    for mode in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    for sizes, scales in (
        ((12, 10), ()),
        ((7, 13), ()),
        ((3, 2), ()),
        ((1, 9), ()),
        ((), (2.0, 3.0)),
        ((), (1.5, 0.5)),
    )
}


@pytest.mark.parametrize("name", RESIZES)
def test_a_linear_resize_in_tosa(name):
    assert_written(RESIZES[name], (("tosa-int8", "tosa"),))


def test_one_number_is_expanded():
    net = Net(6)
    x = net.op("Expand", net.op("Tanh", net.input("x", [])), net.ints(2, 3))
    net.op("Sigmoid", x, out="y")
    net.output("y", [2, 3])
    assert_written(net.data(), NATIVE[::2])
