"""Small trained-looking nets whose channels differ widely, and running them."""

import numpy as np

from planner.interpreter.reference import open_reference
from planner.ir.graph import Op
from tests.calibration.graphs import graph_of

RNG = np.random.default_rng(7)


def normal(*shape, spread=0):
    """Normal numbers in float32; with `spread`, rows along axis 0 times 2^k of their own, |k| <= spread."""
    factors = np.exp2(RNG.integers(-spread, spread + 1, shape[0])).reshape(-1, *(1,) * (len(shape) - 1))
    return (RNG.normal(size=shape) * factors).astype(np.float32)


def outputs(graph, sample, *names):
    """Outputs of the float model (or inner values by name) in onnxruntime."""
    run = open_reference(graph, [name for name in names if name not in graph.outputs], "stripped")
    wanted = names or graph.outputs
    return list(run("sample", sample, tuple(wanted)).values())


def depthwise(between="Relu", *, extra=(), outputs_too=()):
    """Pointwise, depthwise, pointwise convolution (4 to 6 to 3 channels), an op behind the first two."""
    ops = (
        Op("first", "Conv", ("x", "w1", "b1"), ("a",)),
        Op("act1", between, ("a", *extra), ("ar",)),
        Op("deep", "Conv", ("ar", "w2", "b2"), ("d",), {"group": 6, "pads": (1, 1, 1, 1)}),
        Op("act2", between, ("d", *extra), ("dr",)),
        Op("last", "Conv", ("dr", "w3", "b3"), ("y",)),
    )
    wide = (1, 6, 5, 5)
    constants = {
        "w1": normal(6, 4, 1, 1, spread=6),
        "b1": normal(6),
        "w2": normal(6, 1, 3, 3, spread=6),
        "b2": normal(6),
        "w3": normal(3, 6, 1, 1),
        "b3": normal(3),
        "zero": np.float32(0),
        "six": np.float32(6),
        "slope": np.full((6, 1, 1), 0.25, np.float32),
    }
    read = {name for op in ops for name in op.inputs}
    constants = {name: np.asarray(array) for name, array in constants.items() if name in read}
    shapes = dict.fromkeys(("a", "ar", "d", "dr"), wide) | {"y": (1, 3, 5, 5)}
    return graph_of(ops, {"x": (1, 4, 5, 5)}, constants=constants, shapes=shapes, outputs=("y", *outputs_too))


def images(count=3, channels=4):
    """Samples of `depthwise`."""
    return [{"x": normal(1, channels, 5, 5)} for _ in range(count)]


def normed(kind="LayerNormalization"):
    """A normalisation of 8 channels that two linear layers read, and a gated product behind them."""
    head = {
        "LayerNormalization": (Op("norm", "LayerNormalization", ("x", "g", "b"), ("n",), {"axis": -1}),),
        "decomposed": (
            Op("scaled", "Mul", ("x", "g"), ("m",)),
            Op("norm", "Add", ("b", "m"), ("n",)),
        ),
        "RMS": (
            Op("square", "Mul", ("x", "x"), ("s",)),
            Op("mean", "ReduceMean", ("s", "axes"), ("v",), {"keepdims": 1}),
            Op("root", "Sqrt", ("v",), ("r",)),
            Op("unit", "Div", ("x", "r"), ("u",)),
            Op("norm", "Mul", ("g", "u"), ("n",)),
        ),
    }[kind]
    ops = (
        *head,
        Op("gate", "MatMul", ("n", "wg"), ("ga",)),
        Op("up", "MatMul", ("n", "wu"), ("ua",)),
        Op("sigmoid", "Sigmoid", ("ga",), ("gs",)),
        Op("product", "Mul", ("gs", "ua"), ("p",)),
        Op("down", "MatMul", ("p", "wd"), ("y",)),
    )
    constants = {
        "g": np.exp2(RNG.integers(-4, 5, 8)).astype(np.float32),
        "b": normal(8),
        "wg": normal(8, 12),
        "wu": normal(8, 12),
        "wd": normal(12, 8),
        "axes": np.array([-1], np.int64),
    }
    read = {name for op in ops for name in op.inputs}
    wide, narrow = (1, 3, 8), (1, 3, 12)
    shapes = dict.fromkeys(("n", "m", "s", "u", "y"), wide) | dict.fromkeys(("ga", "ua", "gs", "p"), narrow)
    shapes |= {"v": (1, 3, 1), "r": (1, 3, 1)}
    constants = {name: array for name, array in constants.items() if name in read}
    return graph_of(ops, {"x": wide}, constants=constants, shapes=shapes)


def rows(count=3):
    """Samples of `normed`."""
    return [{"x": normal(1, 3, 8)} for _ in range(count)]
