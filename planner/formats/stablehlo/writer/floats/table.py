"""Table: the maker of each ONNX op, on floats; data movement on stored and quantized elements too."""

import math
from collections.abc import Mapping
from typing import Final

from planner.formats.common.moves import MOVED
from planner.formats.stablehlo.vocabulary import (
    BINARIES,
    COMPARISONS,
    LOGIC,
    UNARIES,
    VARIADICS,
)
from planner.formats.stablehlo.writer import movement
from planner.formats.stablehlo.writer.calls import Maker
from planner.formats.stablehlo.writer.floats import arithmetic, composites, windows
from planner.formats.stablehlo.writer.floats.arithmetic import applied
from planner.formats.stablehlo.writer.floats.recurrent import RECURRENT

OPS: Final[Mapping[str, Maker]] = {
    **RECURRENT,
    **dict.fromkeys(MOVED, movement.moved),
    **{kind: arithmetic.one(name) for kind, name in UNARIES.items()},
    **{kind: arithmetic.two(name) for kind, name in {**BINARIES, **LOGIC}.items()},
    **{kind: arithmetic.compared(name) for kind, name in COMPARISONS.items()},
    **{kind: movement.extreme(name) for kind, name in VARIADICS.items()},
    "ArgMax": composites.extreme_place("maximum", -math.inf),
    "ArgMin": composites.extreme_place("minimum", math.inf),
    "AveragePool": windows.average_pool,
    "BatchNormalization": composites.batch_normalization,
    "Cast": arithmetic.cast,
    "Celu": arithmetic.celu,
    "Clip": arithmetic.clip,
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    "Elu": arithmetic.elu,
    "Erf": applied(arithmetic.error_function),
    "Expand": movement.expand,
    "Gather": movement.gather,
    "Gelu": arithmetic.gelu,
    "Gemm": windows.gemm,
    "GlobalAveragePool": windows.global_average_pool,
    "GlobalMaxPool": movement.global_max_pool,
    "HardSigmoid": arithmetic.sloped_sigmoid,
    "HardSwish": applied(arithmetic.hard_swish),
    "InstanceNormalization": composites.instance_normalization,
    "LayerNormalization": composites.layer_normalization,
    "LeakyRelu": arithmetic.leaky_relu,
    "LogSoftmax": composites.log_softmax,
    "MatMul": windows.matmul,
    "MaxPool": movement.max_pool,
    "Mean": arithmetic.added(is_mean=True),
    "Mish": applied(arithmetic.mish),
    "PRelu": arithmetic.prelu,
    "Pad": movement.padded,
    "Reciprocal": applied(arithmetic.reciprocal),
    "ReduceMax": movement.reduce_extreme("maximum", -math.inf),
    "ReduceMean": composites.reduce_mean,
    "ReduceMin": movement.reduce_extreme("minimum", math.inf),
    "ReduceProd": composites.reduced("multiply", 1.0),
    "ReduceSum": composites.reduced("add"),
    "Relu": applied(arithmetic.relu),
    "Resize": composites.resize,
    "Selu": arithmetic.selu,
    "Softmax": composites.softmax,
    "Softplus": applied(arithmetic.softplus),
    "Softsign": applied(arithmetic.softsign),
    "Sum": arithmetic.added(),
    "Tile": movement.tile,
    "TopK": composites.top_k,
    "Where": movement.where,
}
