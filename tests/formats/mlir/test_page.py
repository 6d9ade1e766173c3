"""The correct and incorrect examples of the dialect's page, on all three casts."""

import pytest

from planner.formats.mlir.passes.tool import run_parts

# (shape, parameters behind `!quant.uniform<i8:f32`, the reason where the page says incorrect)
PAGE = [
    (None, ":0, {1.0, 2.0}>", "a scalar cannot have the per-axis type"),
    ("2", ":0, {1.0, 2.0}>", ""),
    ("1x2", ":3, {1.0, 2.0}>", "there is no axis 3"),
    ("1x2", ":1, {1.0, 2.0}>", ""),
    ("?x3", ":1, {1.0, 2.0, 3.0, 4.0}>", "4 scales for axis 1 of size 3"),
    ("?x3", ":1, {2.0, 3.0, 4.0}>", ""),
    (None, ":{0:1, 1:2}, {{1.0}, {2.0}}>", "a scalar cannot have the sub-channel type"),
    ("2x2", ":{0:1, 1:2}, {{1.0}, {2.0}}>", ""),
    ("*", ":{0:1, 1:2}, {{1.0}, {2.0}}>", "needs a ranked tensor"),
    ("2x2", ":{2:1, 1:2}, {{1.0}, {2.0}}>", "there is no axis 2 to have a block size"),
    ("2x2", ":{-1:1, 1:2}, {{1.0}, {2.0}}>", "block -1:1: the axis must not be negative"),
    ("6x2", ":{0:3}, {{1.0}, {3.0}}>", ""),
    ("6x2", ":{}, {{1.0}}>", ""),
    ("6x2", ":{0:-1}, {{1.0, 2.0}}>", "block 0:-1: the axis must not be negative, the size positive"),
    ("6x2", ":{0:8}, {{1.0, 2.0}}>", "the block size 8 of axis 0 is greater than its size 6"),
    ("6x2", ":{0:3}, {{1.0}, {2.0}}>", ""),
    ("6x2", ":{0:4}, {{1.0, 2.0}}>", "axis 0 of size 6 is no multiple of its block size 4"),
    ("6x2", ":{0:6}, {{1.0}}>", ""),
    ("6x2", ":{0:3}, {{1.0, 2.0}}>", "axis 0 of size 6 in blocks of 3 needs 2 scales, not 1"),
    ("6x2", ":{0:3, 1:1}, {{1.0, 2.0}, {3.0, 4.0}}>", ""),
]


@pytest.mark.parametrize("cast", ["qcast", "dcast", "scast"])
@pytest.mark.parametrize(("shape", "parameters", "reason"), PAGE)
def test_examples_of_the_page(cast, shape, parameters, reason):
    kind = f"!quant.uniform<i8:f32{parameters}"
    plain = "i8" if cast == "scast" else "f32"
    quantized, other = (kind, plain) if shape is None else (f"tensor<{shape}x{e}>" for e in (kind, plain))
    taken, given = (other, quantized) if cast == "qcast" else (quantized, other)
    (part,) = run_parts(f'%0 = "t.op"() : () -> {taken}\n%1 = quant.{cast} %0 : {taken} to {given}\n')
    if reason:
        assert reason in part.error
    else:
        assert part.error == ""
