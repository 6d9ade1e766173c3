"""Types meet tensors: the quant dialect's integrity rules, each with a tensor that keeps it and one that does not."""

# ruff: noqa: E501 - messages stand whole

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.errors import ModelError, QTypeError
from planner.ir.graph import Graph, Region, Value
from planner.ir.types.fit import misfit, refuse_misfits
from planner.ir.types.qtypes import sub_channel
from planner.ir.types.storages import storage
from planner.ir.types.typetext import parse_type
from tests.strategies import uniforms

SCALAR: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        # per axis: an element of a tensor, an axis that it has, one scale a slice
        ("i8:f32:0, {0.5, 0.25}", SCALAR, "it has no axis 0, its shape is []"),
        ("i8:f32:0, {0.5, 0.25}", (2,), ""),
        ("i8:f32:4, {0.5, 0.25}", (3, 2), "it has no axis 4, its shape is [3, 2]"),
        ("i8:f32:1, {0.5, 0.25}", (3, 2), ""),
        ("u4:f32:1, {0.5, 0.25, 1.0}", (None, 4), "3 scales for axis 1 of size 4, its shape is [?, 4]"),
        ("u4:f32:1, {0.5, 0.25, 1.0}", (None, 3), ""),
        # sub-channel: an element of a ranked tensor
        ("i4:f32:{0:1, 1:4}, {{0.5}, {0.25}}", SCALAR, "it has no axis 0, its shape is []"),
        ("i4:f32:{0:1, 1:4}, {{0.5}, {0.25}}", (2, 4), ""),
        ("i4:f32:{0:1, 1:4}, {{0.5}, {0.25}}", None, "blocks need a tensor whose rank is known"),
        # block sizes belong to axes that are there; an axis without one is a single block
        ("i4:f32:{0:1, 2:4}, {{{0.5}}, {{0.25}}}", (2, 4), "it has no axis 2, its shape is [2, 4]"),
        ("i4:f32:{0:5}, {{0.5}, {0.25}}", (10, 3), ""),
        ("i4:f32:{}, {{0.5}}", (10, 3), ""),
        # the last block of an axis may be shorter than the others, as ONNX's
        ("i4:f32:{0:11}, {{0.5}, {0.25}}", (10, 3), "axis 0 of size 10 in blocks of 11 needs 1 scales, not 2"),
        ("i4:f32:{0:11}, {{0.5}}", (10, 3), ""),
        ("i4:f32:{0:10}, {{0.5}}", (10, 3), ""),
        ("i4:f32:{0:4}, {{0.5}, {0.25}}", (10, 3), "axis 0 of size 10 in blocks of 4 needs 3 scales, not 2"),
        ("i4:f32:{0:4}, {{0.5}, {0.25}, {1.0}}", (10, 3), ""),
        ("i4:f32:{0:2}, {{0.5}, {0.25}, {1.0}, {2.0}, {4.0}}", (10, 3), ""),
        # as many scales along an axis as blocks
        ("i4:f32:{0:5}, {{0.5, 0.25}}", (10, 3), "axis 0 of size 10 in blocks of 5 needs 2 scales, not 1"),
        ("i4:f32:{0:5}, {{0.5, 0.25}, {1.0, 2.0}}", (10, 3), "axis 1 has no block size, so it is one block and needs one scale, not 2"),
        # unknown sizes take any number of blocks, but not of an axis that is a single one
        ("i4:f32:{0:5}, {{0.5}, {0.25}, {1.0}}", ("N", None), ""),
        ("i4:f32:{1:5}, {{0.5}, {0.25}}", (None, 10), "axis 0 has no block size, so it is one block and needs one scale, not 2"),
        ("i4:f32:{1:2}, {{0.5}}", (0, 2), "a tensor without elements has no blocks, its shape is [0, 2]"),
        ("i4:f32:{}, {{{0.5}}}", (None, None), "scales nest 3 deep, its shape is [?, ?]"),
    ],
)  # fmt: skip
def test_integrity(text, shape, message):
    kind = parse_type(f"!quant.uniform<{text}>")
    found = misfit(kind, Value("v", shape, "f32"))
    assert found == (f"type {kind} does not fit 'v': {message}" if message else "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i8:f32:{-1:1, 1:2}, {{0.5}, {0.25}}", "column 24: block -1:1: the axis must not be negative, the size positive"),
        ("i8:f32:{0:-3}, {{0.5, 0.25}}", "column 24: block 0:-3: the axis must not be negative, the size positive"),
        ("i8:f32:-2, {0.5, 0.25}", "column 23: quantized dimension -2 is negative"),
    ],
)  # fmt: skip
def test_axes_and_blocks_that_no_tensor_has(text, message):
    with pytest.raises(QTypeError) as caught:
        parse_type(f"!quant.uniform<{text}>")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("!quant.uniform<i8:f32, 0.5>", "f32", ""),
        ("!quant.uniform<i8:tf32, 0.5>", "f32", ""),
        ("!quant.uniform<i8:f32, 0.5>", "f64", "type !quant.uniform<i8:f32, 0.5> expresses f32, value 'v' is f64"),
        ("!quant.any<i4:f16>", "bf16", "type !quant.any<i4:f16> expresses f16, value 'v' is bf16"),
        ("!quant.any<i4>", "bf16", ""),
        ("!quant.any<i8:f32:1, {0.5,0.25}>", "f32", "type !quant.uniform<i8:f32:1, {0.5,0.25}> does not fit 'v': 2 scales for axis 1 of size 3, its shape is [2, 3]"),
        ("!quant.bipolar<f32, 0.5>", "f32", ""),
        ("!quant.none", "i8", "value 'v' has element type i8; only float values carry types"),
        ("!quant.calibrated<f32:1, {0.0:1.0, -1.0:1.0}>", "f32", "type !quant.calibrated<f32:1, {0.0:1.0, -1.0:1.0}> does not fit 'v': 2 ranges for axis 1 of size 3, its shape is [2, 3]"),
        ("!quant.calibrated<f32:0, {0.0:1.0, -1.0:1.0}>", "f32", ""),
    ],
)  # fmt: skip
def test_expressed_types_and_ranges(text, dtype, message):
    assert misfit(parse_type(text), Value("v", (2, 3), dtype)) == message


def test_a_long_type_is_cut_in_the_message():
    kind = sub_channel(storage("i4"), [0.5] * 100, blocks={0: 1}, grid=(100, 1))
    assert misfit(kind, Value("w", (99, 2), "f32")).startswith(
        "type !quant.uniform<i4:f32:{0:1}, {{0.5}, {0.5}, {0.5}, {0.5}, {0.5}, {0.5}, {0.5}... does not fit 'w': axis 0"
    )


def test_facts_of_values_and_ports_are_judged():
    kind = parse_type("!quant.uniform<i8:f32:1, {0.5, 0.25}>")
    values = {name: Value(name, (2, 3), "f32") for name in "xy"}
    region = Region("k", "relu", ("x",), ("y",))
    graph = Graph("g", values, (), ("x",), ("y",), regions=(region,))
    assert refuse_misfits(graph) is graph
    pinned = replace(graph, values={**values, "y": replace(values["y"], facts=(kind,))})
    port = replace(graph, regions=(replace(region, input_facts=((kind,),)),))
    for broken, name in ((pinned, "y"), (port, "x")):
        with pytest.raises(ModelError) as caught:
            refuse_misfits(broken)
        assert str(caught.value) == (
            f"model 'g': type {kind} does not fit {name!r}: 2 scales for axis 1 of size 3, its shape is [2, 3]"
        )


@given(uniforms(), st.data())
def test_a_tensor_made_for_its_type_fits_and_another_size_does_not(kind, data):
    blocks = dict(kind.blocks)
    assume(kind.expressed != "f80")  # no element type of a value
    assume(all(count == 1 or axis in blocks for axis, count in enumerate(kind.grid)))
    shape, dtype = fitting(kind), "f32" if kind.expressed == "tf32" else kind.expressed
    assert misfit(kind, Value("v", shape, dtype)) == ""
    axes = [kind.axis] if kind.axis is not None else sorted(blocks)
    if axes:
        axis, more = data.draw(st.sampled_from(axes)), data.draw(st.integers(1, 3))
        grown = tuple(size + (i == axis) * more for i, size in enumerate(shape))
        assert misfit(kind, Value("v", grown, dtype)) != ""


def fitting(kind):
    """The smallest shape with the slices of a type; axes without blocks are 7 long."""
    if kind.axis is not None:
        return (*(5 for _ in range(kind.axis)), len(kind.scales))
    sizes = dict(kind.blocks)
    return tuple(count * sizes[axis] if axis in sizes else 7 for axis, count in enumerate(kind.grid)) or (3,)
