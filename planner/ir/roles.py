"""Roles of operands: the values of an op that are ports, and the ops that only move data.

A port is a float value that carries data. Shapes, indices and masks are told by their element type; float
operands that parametrise an op (a clip's bounds, a resize's scales) are in `NON_PORT_INPUTS`. Weights and
normalisation statistics are data. Source: ONNX operator schemas; docs/specification.md, sections 3 and 4.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from planner.ir.graph import FLOAT_DTYPES, Graph, Op
from planner.ir.structure import BEGIN, END, JOIN

NON_PORT_INPUTS: Final[Mapping[str, frozenset[int]]] = {
    "CastLike": frozenset({1}),
    "Clip": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "EyeLike": frozenset({0}),
    "GRU": frozenset({4}),
    "LSTM": frozenset({4}),
    "MelWeightMatrix": frozenset({0, 1, 2, 3, 4}),
    "NonMaxSuppression": frozenset({2, 3, 4}),
    "OneHot": frozenset({1, 2}),
    "Pad": frozenset({1, 2, 3}),
    "QuantizeLinear": frozenset({1, 2}),
    "RNN": frozenset({4}),
    "RandomNormalLike": frozenset({0}),
    "RandomUniformLike": frozenset({0}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2, 3}),
    "Shape": frozenset({0}),
    "Size": frozenset({0}),
    "Upsample": frozenset({1}),
    JOIN: frozenset({0}),
}

MOVERS: Final = frozenset(
    {
        BEGIN,
        END,
        JOIN,
        "CenterCropPad",
        "Clip",
        "Compress",
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Identity",
        "Max",
        "MaxPool",
        "Min",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "Resize",
        "ReverseSequence",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Upsample",
        "Where",
    }
)


POINTWISE: Final = frozenset(
    {
        *("Abs", "Add", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu"),
        *("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg"),
        *("PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"),
        *("Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu"),
    }
)
"""Ops whose result at an element depends on their operands at that element."""


def function_of_one(ops: Iterable[Op], graph: Graph) -> str:
    """The value that ops compute a function of, number by number; "" where they are none.

    Their other operands are constants of one number.
    """
    made: set[str] = set()
    found: set[str] = set()
    for op in ops:
        if op.type not in POINTWISE or op.captures:
            return ""
        made.update(op.outputs)
        others = {name for name in op.inputs if name and name not in made}
        found |= {name for name in others if name not in graph.constants or graph.values[name].elements != 1}
    return found.pop() if len(found) == 1 and not found & graph.constants.keys() else ""


def is_product_of_rows(ops: Sequence[Op], graph: Graph, *, per_token: bool) -> bool:
    """Whether ops begin with a product of an activation and a constant weight.

    Args:
      per_token: whether it has to sum along the activation's last axis: a matrix product, no convolution.
    """
    op = ops[0] if ops else None
    if op is None or op.type not in ("Conv", "Gemm", "MatMul") or op.captures:
        return False
    if op.attributes.get("transA") or op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    x, weight = op.inputs[:2]
    rank = len(graph.values[weight].shape or ())
    is_known = weight in graph.constants and x not in graph.constants
    return is_known and (rank == 2 if op.type != "Conv" else not per_token)


def port_inputs(op: Op, graph: Graph) -> tuple[str, ...]:
    """Name the float data operands of an op in order, then the float values its bodies capture.

    An absent optional operand before a present one is "".
    """
    excluded = NON_PORT_INPUTS.get(op.type)
    operands = op.inputs
    if excluded:
        operands = tuple(name for i, name in enumerate(operands) if i not in excluded)
    ports = _floats(operands, graph)
    if not op.captures:
        return ports
    return ports + _floats((name for name in op.captures if name and name not in op.inputs), graph)


def port_outputs(op: Op, graph: Graph) -> tuple[str, ...]:
    """Name the float results of an op in order; an absent optional result before a present one is ""."""
    return _floats(op.outputs, graph)


def is_of_other_dialect(op: Op) -> bool:
    """Whether nothing here knows what an op computes: `stablehlo::add`, `com.acme::Turn`.

    A row that joins all of its ports by `same_scale` says that it moves data, unless it says `computes`.
    """
    return "::" in op.type


def is_mover(op: Op, graph: Graph | None = None) -> bool:
    """Whether every element of the results is an element of the operands, or one cut to a bound.

    Interpolating resizes, adding scatters and pads with another value than 0 compute. Without a graph
    a pad value that is an operand counts as unknown.
    """
    if op.type not in MOVERS:
        return False
    condition = _MOVES_WHEN.get(op.type)
    return condition is None or condition(op, graph)


def _floats(names: Iterable[str], graph: Graph) -> tuple[str, ...]:
    values = graph.values
    kept = [name for name in names if not name or values[name].dtype in FLOAT_DTYPES]
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _resize_moves(op: Op, _: Graph | None) -> bool:
    # tf_crop_and_resize fills with `extrapolation_value` outside of the crop, which no operand holds.
    crops = op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return op.attributes.get("mode", "nearest") == "nearest" and not crops


def _pad_moves(op: Op, graph: Graph | None) -> bool:
    if op.attributes.get("mode", "constant") != "constant":
        return True
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    if not name:
        return not op.attributes.get("value", 0.0)
    # Zero is exact in every type; any other filling would need a step of its own in the operand's type.
    constant = graph.constants.get(name) if graph else None
    return constant is not None and constant.array is not None and not np.any(constant.array)


def _scatter_moves(op: Op, _: Graph | None) -> bool:
    # Maximum and minimum pick an element; `add` and `mul` make new ones.
    return op.attributes.get("reduction", "none") in ("none", "max", "min")


_MOVES_WHEN: Final[Mapping[str, Callable[[Op, Graph | None], bool]]] = {
    "Pad": _pad_moves,
    "Resize": _resize_moves,
    "ScatterElements": _scatter_moves,
    "ScatterND": _scatter_moves,
    "Upsample": _resize_moves,
}
