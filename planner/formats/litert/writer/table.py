"""Table: the writer of LiteRT operators for each op, on stored integers and floats alike."""

from collections.abc import Mapping
from typing import Final

from planner.formats.common.moves import MOVED
from planner.formats.litert.vocabulary import ALONG, BINARIES, BLOCKS, COMPARISONS, UNARIES
from planner.formats.litert.writer.calls import Writer
from planner.formats.litert.writer.clamps import clip
from planner.formats.litert.writer.elementwise import (
    along_last,
    binary,
    cast,
    compare,
    extreme,
    power,
    prelu,
    reciprocal,
    unary,
    where,
)
from planner.formats.litert.writer.linear import conv, conv_transpose, fully_connected
from planner.formats.litert.writer.movement import (
    blocks,
    concat,
    gather,
    gather_nd,
    moved,
    pad,
    resize,
)
from planner.formats.litert.writer.pooling import argmax, average_pool, global_pool, max_pool, reduction
from planner.formats.litert.writer.recurrent import lstm
from planner.ops import CONCATS

_MORE: Final[Mapping[str, Writer]] = {
    "ArgMax": argmax,
    "AveragePool": average_pool,
    "Cast": cast,
    "Clip": clip,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gather": gather,
    "GatherND": gather_nd,
    "Gemm": fully_connected,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    "LSTM": lstm,
    "MatMul": fully_connected,
    "Max": extreme,
    "MaxPool": max_pool,
    "Min": extreme,
    "PRelu": prelu,
    "Pad": pad,
    "Pow": power,
    "Reciprocal": reciprocal,
    "ReduceMax": reduction,
    "ReduceMean": reduction,
    "ReduceMin": reduction,
    "ReduceSum": reduction,
    "Relu": clip,
    "Resize": resize,
    "Where": where,
}
WRITERS: Final[Mapping[str, Writer]] = {
    **dict.fromkeys(MOVED, moved),
    **dict.fromkeys(ALONG, along_last),
    **dict.fromkeys(BINARIES, binary),
    **dict.fromkeys(BLOCKS, blocks),
    **dict.fromkeys(CONCATS, concat),
    **dict.fromkeys(COMPARISONS, compare),
    **dict.fromkeys(UNARIES, unary),
    **_MORE,
}
ONE_TYPE: Final = frozenset({"AveragePool", "Resize"})
"""Ops besides those that move data whose operators read and write integers of one type."""
RESCALING: Final = CONCATS | {"Where"}
"""Ops that move data whose operands get a QUANTIZE where they are of another type."""
