"""Small graphs that the calibration tests run and annotate."""

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Region, Value


def graph_of(ops, inputs, *, outputs=None, constants=None, shapes=None, name="small"):
    """A graph of f32 values; `inputs` maps names to shapes, or to (shape, element type)."""
    described = {k: v if v and isinstance(v[0], tuple) else (v, "f32") for k, v in inputs.items()}
    values = {key: Value(key, shape, dtype) for key, (shape, dtype) in described.items()}
    for key, array in (constants or {}).items():
        values[key] = Value(key, array.shape, "i64" if array.dtype == np.int64 else "f32")
    for op in ops:
        values.update({key: Value(key, (shapes or {}).get(key)) for key in op.outputs})
    return Graph(
        name,
        values,
        tuple(ops),
        tuple(inputs),
        outputs or ops[-1].outputs,
        {key: Constant(array) for key, array in (constants or {}).items()},
        opsets={"": 21},
    )


def branchy():
    """Every derivation in one graph: relu, clip, reshape, transpose, concat, and ops to observe."""
    ops = (
        Op("scale", "Mul", ("x", "two"), ("m",)),
        Op("relu", "Relu", ("m",), ("r",)),
        Op("clip", "Clip", ("m", "zero", "six"), ("c",)),
        Op("open_clip", "Clip", ("m", "", "six"), ("o",)),
        Op("flat", "Reshape", ("r", "shape"), ("f",)),
        Op("turn", "Transpose", ("c",), ("t",), {"perm": (1, 0)}),
        Op("back", "Reshape", ("t", "shape"), ("b",)),
        Op("cat", "Concat", ("f", "b"), ("k",), {"axis": 0}),
        Op("soft", "Softmax", ("k",), ("y",), {"axis": 0}),
    )
    constants = {
        "two": np.array(2.0, np.float32),
        "zero": np.array(0.0, np.float32),
        "six": np.array(6.0, np.float32),
        "shape": np.array([-1], np.int64),
    }
    return graph_of(ops, {"x": (3, 4)}, outputs=("y", "o"), constants=constants)


def two_inputs():
    """`image` [1, 3, 2, 2] and `ids` [1, 4] as i64."""
    ops = (
        Op("relu", "Relu", ("image",), ("r",)),
        Op("cast", "Cast", ("ids",), ("c",), {"to": 1}),
    )
    return graph_of(ops, {"image": (1, 3, 2, 2), "ids": ((1, 4), "i64")}, outputs=("r", "c"))


def fused():
    """One region, `conv1`, with an absent bias."""
    values = {
        "x": Value("x", (1, 3, 8, 8)),
        "w": Value("w", (16, 3, 3, 3)),
        "y": Value("y", (1, 16, 8, 8)),
        "ids": Value("ids", (4,), "i64"),
    }
    region = Region("conv1", "conv2d", ("x", "w", ""), ("y",))
    weights = Constant(np.zeros((16, 3, 3, 3), np.float32))
    return Graph("fused", values, (), ("x", "ids"), ("y",), {"w": weights}, (region,))
