"""Axes of weights: what an operator computes says which one counts output channels, and which one it sums."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.ir.types.typetext import parse_storage
from planner.target.ports.axes import (
    axis_of_scales,
    block_axes,
    block_size,
    channel_axis,
    summed_terms,
    too_dense,
)
from planner.target.records import PortPattern, PortType, Row

RNG = np.random.default_rng(3)
I4 = PortType(parse_storage("i4"), "block", block_size=(32, 16, 4), sparsity=(2, 4))
W = PortPattern("w", I4)
CASES = {
    "Conv": ("Conv", {}, (1, 3, 5, 5), (4, 3, 2, 2)),
    "Conv1d": ("Conv", {}, (1, 3, 6), (4, 3, 2)),
    "ConvTranspose": ("ConvTranspose", {}, (1, 3, 5, 5), (3, 4, 2, 2)),
    "Gemm": ("Gemm", {}, (2, 3), (3, 4)),
    "Gemm transB": ("Gemm", {"transB": 1}, (2, 3), (4, 3)),
    "MatMul": ("MatMul", {}, (2, 3), (3, 4)),
    "MatMul of a batch": ("MatMul", {}, (2, 2, 3), (2, 3, 4)),
}


def region_of(kind, attributes, w, *, before=()):
    op = Op("o", kind, ("x", "w"), ("y",), attributes)
    values = {"x": Value("x", None, "f32"), "w": Value("w", w, "f32"), "y": Value("y", None, "f32")}
    graph = Graph("m", values, (), ("x", "w"), ("y",), {}, ())
    return graph, Region("k", kind.lower(), ("x", "w"), ("y",), (*before, op)), op


def run(kind, attributes, x, w):
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", x.shape), ("w", w.shape), ("y", None))
    ]
    node = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", described[:2], described[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ReferenceEvaluator(model).run(None, {"x": x, "w": w})[0]


def row(axis=None):
    ports = (PortPattern("x", PortType()), W)
    return Row("k", ports, (), axis={} if axis is None else {"w": axis})


def along(array, axis, factors):
    return array * factors.reshape([-1 if at == axis else 1 for at in range(array.ndim)])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_factor_of_an_output_channel_of_the_weight_is_one_of_the_output(case):
    kind, attributes, shape, w_shape = case
    graph, region, _ = region_of(kind, attributes, w_shape)
    x, w = (RNG.normal(size=sizes).astype(np.float32) for sizes in (shape, w_shape))
    y, axis = run(kind, attributes, x, w), channel_axis(region, graph)
    factors = RNG.uniform(2, 3, w_shape[axis]).astype(np.float32)
    channel = 1 if kind.startswith("Conv") else y.ndim - 1
    assert y.shape[channel] == w_shape[axis]
    np.testing.assert_allclose(
        run(kind, attributes, x, along(w, axis, factors)), along(y, channel, factors), rtol=1e-4, atol=1e-4
    )
    assert axis_of_scales(graph, region, row(), "w", "w") == axis
    assert block_axes(graph, region, row(), W, len(w_shape))[0] == axis


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_blocks_lie_along_the_axis_that_is_summed(case):
    """Without a slice of the weight the output is that without the channel of the input."""
    kind, attributes, shape, w_shape = case
    graph, region, op = region_of(kind, attributes, w_shape)
    x, w = (RNG.normal(size=sizes).astype(np.float32) for sizes in (shape, w_shape))
    channel, axis = block_axes(graph, region, row(), W, len(w_shape))
    assert channel != axis
    kept = (np.arange(w_shape[axis]) != 1).astype(np.float32)
    of_x = 1 if kind.startswith("Conv") else x.ndim - 1
    np.testing.assert_allclose(
        run(kind, attributes, along(x, of_x, kept), w),
        run(kind, attributes, x, along(w, axis, kept)),
        rtol=1e-4,
        atol=1e-4,
    )
    ones = run(kind, attributes, np.ones(shape, np.float32), np.ones(w_shape, np.float32))
    assert summed_terms(graph, op) == int(ones.max())
    for at, _ in enumerate(w_shape):
        open_size = region_of(kind, attributes, (*w_shape[:at], "n", *w_shape[at + 1 :]))
        is_summed = summed_terms(open_size[0], open_size[2]) is None
        # Only a size that is summed has to be known.
        assert is_summed == (
            at not in (channel, *range(len(w_shape) - 2)) if kind == "MatMul" else at != channel
        )


def test_what_a_row_says_of_an_axis_goes_before_what_the_operator_says():
    graph, region, _ = region_of("MatMul", {}, (2, 3, 4))
    for axis in range(-3, 3):
        assert axis_of_scales(graph, region, row(axis), "w", "w") == axis % 3
        assert block_axes(graph, region, row(axis), W, 3) == (axis % 3, 2 if axis % 3 != 2 else 1)
    assert axis_of_scales(graph, region, row(-1), "x", "x") == 2  # the row says nothing of `x`
    unknown = region_of("MatMul", {}, None)[0]
    assert axis_of_scales(unknown, region, row(-1), "w", "w") is None
    assert [axis_of_scales(unknown, region, row(axis), "w", "w") for axis in (0, 1)] == [0, 1]
    graph, region, _ = region_of("Relu", {}, (2, 3, 4))
    assert axis_of_scales(graph, region, row(), "w", "w") is None
    assert axis_of_scales(graph, region, row(2), "w", "w") == 2
    assert channel_axis(region, graph) == 0
    for axis in range(3):
        assert block_axes(graph, region, row(axis), W, 3) == (axis, 0 if axis else 1)


def test_the_first_operator_that_multiplies_says_the_axis():
    cast = Op("c", "Relu", ("x",), ("x2",))
    graph, region, _ = region_of("Gemm", {}, (3, 4), before=(cast,))
    assert channel_axis(region, graph) == 1
    behind = Op("p", "ConvTranspose", ("y", "w"), ("z",))
    assert channel_axis(replace(region, ops=(*region.ops, behind)), graph) == 1
    graph, region, _ = region_of("Conv", {}, (3, 4, 1))
    assert channel_axis(replace(region, ops=(*region.ops, behind)), graph) == 0


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("sizes", [*itertools.permutations((32, 16, 4)), (3,)])
def test_blocks_divide_the_axis_or_leave_one_short_where_the_port_allows(short, sizes):
    """The first size of the port wins, and one that divides before one that does not."""
    pattern = PortPattern("w", replace(I4, block_size=sizes, short_block=short))
    for size in range(1, 70):
        graph, region, _ = region_of("MatMul", {}, (size, 5))
        found = block_size(graph, region, row(), pattern, "w")
        dividing = [block for block in sizes if size % block == 0]
        not_longer = [block for block in sizes if block <= size]
        if dividing:
            assert found == dividing[0]
        elif short:
            assert found == (not_longer or sorted(sizes))[0]
        else:
            assert found is None
    for shape in (None, (8,), ("n", 5)):
        graph, region, _ = region_of("MatMul", {}, shape)
        assert block_size(graph, region, row(), pattern, "w") is None
    graph, region, _ = region_of("MatMul", {}, (0, 5))
    assert block_size(graph, region, row(), pattern, "w") == sizes[0]  # nothing to cut: any size divides 0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sparse_weights_are_counted_in_groups_along_the_summed_axis(case):
    kind, attributes, _, w_shape = case
    graph, region, _ = region_of(kind, attributes, w_shape)
    axis = block_axes(graph, region, row(), W, len(w_shape))[1]
    wide = tuple(10 if at == axis else size for at, size in enumerate(w_shape))
    for few, many in ((1, 2), (2, 4), (4, 4), (1, 16)):
        pattern = PortPattern("w", replace(I4, sparsity=(few, many)))
        for share in (0.0, 0.1, 0.4, 1.0):
            array = np.where(RNG.random(wide) < share, -1.0, 0.0).astype(np.float32)
            lines = np.moveaxis(array, axis, -1).reshape(-1, 10)
            most = max(np.count_nonzero(line[at : at + many]) for line in lines for at in range(0, 10, many))
            held = replace(graph, constants={"w": Constant(array)})
            said = too_dense(held, region, row(), pattern, "w")
            assert (said is None) == (most <= few)
            if said:
                asked = f"port w ('w') is to be {few}:{many} sparse"
                assert said == f"{asked}, and {most} of {many} along axis {axis} are not 0"


def test_sparsity_is_asked_of_numbers_that_are_known():
    graph, region, _ = region_of("MatMul", {}, (3, 4))
    pattern = PortPattern("w", I4)
    unknown = "port w ('w') is to be 2:4 sparse, and its numbers are not known"
    assert too_dense(graph, region, row(), pattern, "w") == unknown
    assert too_dense(replace(graph, constants={"w": Constant()}), region, row(), pattern, "w") == unknown
    assert too_dense(graph, region, row(), PortPattern("w", replace(I4, sparsity=None)), "w") is None
    empty = replace(graph, constants={"w": Constant(np.zeros((0, 4), np.float32))})
    assert too_dense(empty, region, row(), pattern, "w") is None
    flat = replace(graph, constants={"w": Constant(np.ones(3, np.float32))})
    assert too_dense(flat, region, row(), pattern, "w").endswith("and 3 of 4 along axis 0 are not 0")
