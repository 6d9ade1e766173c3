"""Pooling and reductions: AVERAGE_POOL_2D, MAX_POOL_2D, MEAN, SUM, REDUCE_*, ARG_MAX and ARG_MIN as ONNX ops.

Source: TensorFlow Lite, reference kernels.
"""

from collections.abc import Mapping
from typing import Final

from planner.formats.litert.reader.builder import LAST, Builder, Unread
from planner.formats.litert.reader.file import Operator
from planner.formats.litert.reader.linear import Reader, window_attributes
from planner.formats.litert.vocabulary import POOLS, REDUCTIONS
from planner.formats.onnx.dtypes import enum_of

_POOLS: Final = {theirs: ours for ours, theirs in POOLS.items()}
_REDUCED: Final = {**{one.operator: ours for ours, one in REDUCTIONS.items()}, "REDUCE_PROD": "ReduceProd"}
_PICKED: Final = {"ARG_MAX": "ArgMax", "ARG_MIN": "ArgMin"}


def pool(builder: Builder, op: Operator) -> None:
    """AVERAGE_POOL_2D, which does not count padding, and MAX_POOL_2D."""
    options = builder.options(op, "Pool2DOptions")
    kernel = options.FilterHeight(), options.FilterWidth()
    strides = options.StrideH(), options.StrideW()
    attributes = window_attributes(builder, op, 0, (kernel, strides, (1, 1)), options.Padding())
    # onnxruntime's quantized pools do not know the attribute.
    del attributes["dilations"]
    activation = options.FusedActivationFunction()
    builder.result(op, _POOLS[op.name], [builder.image(op)], attributes, activation=activation, order=LAST)


def reduction(builder: Builder, op: Operator) -> None:
    """MEAN, SUM, REDUCE_MAX, REDUCE_MIN and REDUCE_PROD over constant axes."""
    options = builder.options(op, "ReducerOptions")
    rank = len(builder.tensor(op, 0).shape)
    axes = builder.numbers(op, 1)
    if not axes or any(not -rank <= axis < rank for axis in axes):
        raise Unread(f"its axes are {list(axes)} of {rank}")
    names = [builder.value(op, 0), builder.integers(sorted({axis % rank for axis in axes}))]
    builder.result(op, _REDUCED[op.name], names, {"keepdims": int(options.KeepDims())})


def picked(builder: Builder, op: Operator) -> None:
    """ARG_MAX and ARG_MIN: the first of equal ones, in 32 or 64 bits."""
    rank, axes = len(builder.tensor(op, 0).shape), builder.numbers(op, 1)
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise Unread(f"its axes are {list(axes)} of {rank}")
    result = builder.file.tensors[op.outputs[0]]
    attributes = {"axis": axes[0] % rank, "keepdims": 0}
    kind, name = _PICKED[op.name], builder.value(op, 0)
    if result.element == "i64":
        builder.result(op, kind, [name], attributes)
        return
    found = builder.between(kind, [name], result.shape, attributes, "i64")
    builder.result(op, "Cast", [found], {"to": enum_of(result.element)})


POOLING: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(_POOLS, pool),
    **dict.fromkeys(_REDUCED, reduction),
    **dict.fromkeys(_PICKED, picked),
}
