"""Table: the writer of LiteRT operators for each op, on stored integers and floats alike."""

from collections.abc import Mapping
from typing import Final

from planner.exporters.common.moves import MOVED
from planner.exporters.litert.calls import Writer
from planner.exporters.litert.clamps import clip
from planner.exporters.litert.elementwise import (
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
from planner.exporters.litert.linear import conv, conv_transpose, fully_connected
from planner.exporters.litert.movement import (
    blocks,
    concat,
    gather,
    gather_nd,
    moved,
    pad,
    resize,
)
from planner.exporters.litert.pooling import argmax, average_pool, global_pool, max_pool, reduction
from planner.exporters.litert.recurrent import lstm
from planner.litert_reader.vocabulary import ALONG, BINARIES, BLOCKS, COMPARISONS, UNARIES
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
