"""Float regions: each ONNX op as StableHLO operations, jaxlib's interpreter against onnxruntime."""

import numpy as np
import pytest

from planner.errors import UnsupportedExport
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import evaluate
from tests.formats.plans import model, op, plan_of
from tests.oracles import hlo

RNG = np.random.default_rng(7)


def _reals(*shape):
    return RNG.uniform(-2, 2, shape).astype(np.float32)


X, POSITIVE = _reals(2, 4, 6, 6), np.abs(_reals(2, 4, 6, 6)) + np.float32(0.1)
HALF = np.asarray(0.5, np.float32)
IDS = np.asarray([[2, -1], [0, 3]])
CASES = [
    *(
        (op(kind, "x", "y"), {"x": X}, {})
        for kind in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Round")
    ),
    *(
        (op(kind, "x", "y"), {"x": X}, {})
        for kind in ("Sigmoid", "Sign", "Sin", "Tan", "Tanh", "Relu", "Elu")
    ),
    *(
        (op(kind, "x", "y"), {"x": X}, {})
        for kind in ("Celu", "Selu", "Mish", "Softsign", "Softplus", "HardSwish")
    ),
    *((op(kind, "x", "y"), {"x": POSITIVE}, {}) for kind in ("Log", "Sqrt", "Reciprocal")),
    *(
        (op(kind, "x w", "y"), {"x": X}, {"w": _reals(4, 1, 6)})
        for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min")
    ),
    (op("Pow", "x w", "y"), {"x": POSITIVE}, {"w": _reals(6)}),
    (op("Clip", "x lo hi", "y"), {"x": X}, {"lo": -HALF, "hi": HALF}),
    (op("LeakyRelu", "x", "y", alpha=0.2), {"x": X}, {}),
    (op("PRelu", "x w", "y"), {"x": X}, {"w": _reals(4, 1, 1)}),
    (op("HardSigmoid", "x", "y", alpha=0.3, beta=0.4), {"x": X}, {}),
    (op("Gelu", "x", "y"), {"x": X}, {}),
    (op("Gelu", "x", "y", approximate="tanh"), {"x": X}, {}),
    (op("Softmax", "x", "y", axis=1), {"x": X}, {}),
    (op("LogSoftmax", "x", "y"), {"x": X}, {}),
    (op("LayerNormalization", "x w b", "y", axis=-2), {"x": X}, {"w": _reals(6, 6), "b": _reals(6, 6)}),
    (op("InstanceNormalization", "x w b", "y"), {"x": X}, {"w": _reals(4), "b": _reals(4)}),
    (
        op("BatchNormalization", "x s b m v", "y"),
        {"x": X},
        {"s": _reals(4), "b": _reals(4), "m": _reals(4), "v": np.abs(_reals(4))},
    ),
    (op("ReduceMean", "x a", "y"), {"x": X}, {"a": np.array([2, 3])}),
    (op("ReduceSum", "x a", "y", keepdims=0), {"x": X}, {"a": np.array([-1])}),
    (op("ReduceMax", "x a", "y"), {"x": X}, {"a": np.array([1])}),
    (op("ReduceMin", "x", "y", keepdims=0), {"x": X}, {}),
    (op("GlobalAveragePool", "x", "y"), {"x": X}, {}),
    (op("GlobalMaxPool", "x", "y"), {"x": X}, {}),
    (op("AveragePool", "x", "y", kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)), {"x": X}, {}),
    (op("AveragePool", "x", "y", kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1), {"x": X}, {}),
    (op("AveragePool", "x", "y", kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1), {"x": X}, {}),
    *(
        (
            op(
                "AveragePool", "x", "y", kernel_shape=(3, 2), auto_pad=pad, count_include_pad=includes, **more
            ),
            {"x": X},
            {},
        )
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
        for includes in (0, 1)
        for more in ({}, {"strides": (2, 3)})
    ),
    (
        op("MaxPool", "x", "y", kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1, pads=(1, 1, 1, 1)),
        {"x": X},
        {},
    ),
    (op("MaxPool", "x", "y", kernel_shape=(2, 2), dilations=(2, 2)), {"x": X}, {}),
    (
        op("Conv", "x w b", "y", pads=(1, 0, 2, 1), strides=(2, 1)),
        {"x": X},
        {"w": _reals(3, 4, 3, 2), "b": _reals(3)},
    ),
    (op("Conv", "x w", "y", dilations=(2, 2), group=2), {"x": X}, {"w": _reals(6, 2, 2, 2)}),
    (op("Conv", "x w", "y", auto_pad="SAME_LOWER", strides=(2, 2)), {"x": X}, {"w": _reals(2, 4, 4, 4)}),
    (op("Conv", "x w", "y"), {"x": _reals(2, 3, 9)}, {"w": _reals(4, 3, 2)}),
    (
        op("ConvTranspose", "x w b", "y", strides=(2, 3), pads=(1, 0, 0, 1), output_padding=(1, 2)),
        {"x": X},
        {"w": _reals(4, 3, 3, 4), "b": _reals(3)},
    ),
    (op("ConvTranspose", "x w", "y", group=2, dilations=(2, 1)), {"x": X}, {"w": _reals(4, 3, 2, 2)}),
    (
        op("Gemm", "a b c", "y", alpha=0.5, beta=2.0, transB=1),
        {"a": _reals(3, 5)},
        {"b": _reals(4, 5), "c": _reals(4)},
    ),
    (op("Gemm", "a b", "y", transA=1), {"a": _reals(5, 3)}, {"b": _reals(5, 4)}),
    (op("MatMul", "a b", "y"), {"a": _reals(2, 1, 3, 4), "b": _reals(5, 4, 2)}, {}),
    (op("MatMul", "a b", "y"), {"a": _reals(4), "b": _reals(3, 4, 2)}, {}),
    (op("MatMul", "a b", "y"), {"a": _reals(2, 3, 4)}, {"b": _reals(4)}),
    (op("Reshape", "x s", "y"), {"x": X}, {"s": np.array([0, -1, 9])}),
    (op("Flatten", "x", "y", axis=2), {"x": X}, {}),
    (op("Transpose", "x", "y", perm=(2, 0, 3, 1)), {"x": X}, {}),
    (
        op("Slice", "x s e a t", "y"),
        {"x": X},
        {"s": np.array([5, 1]), "e": np.array([-99, 5]), "a": np.array([2, 3]), "t": np.array([-2, 3])},
    ),
    (op("Pad", "x p", "y"), {"x": X}, {"p": np.array([0, 1, 0, 2, 1, 0, 0, -1])}),
    (op("Pad", "x p", "y", mode="reflect"), {"x": X}, {"p": np.array([0, 0, 2, 1, 0, 0, 1, 3])}),
    (op("Gather", "x i", "y", axis=2), {"x": X}, {"i": np.array([[5, -1], [0, 2]])}),
    (op("Gather", "x i", "y", axis=1), {"x": X}, {"i": np.asarray(-2)}),
    (op("Gather", "w i", "y"), {"i": IDS}, {"w": _reals(5, 3)}),
    (op("GatherND", "x i", "y"), {"x": X}, {"i": np.array([[[0, -1], [1, 2]]])}),
    (op("GatherElements", "a i", "y", axis=1), {"a": _reals(2, 4)}, {"i": np.array([[3, -1], [0, 2]])}),
    (op("ReverseSequence", "x n", "y"), {"x": X}, {"n": np.array([2, 1, 0, 2])}),
    (op("Expand", "a s", "y"), {"a": _reals(3, 1)}, {"s": np.array([2, 1, 4])}),
    (op("Tile", "a s", "y"), {"a": _reals(3, 2)}, {"s": np.array([2, 3])}),
    (op("Concat", "a b", "y", axis=-1), {"a": _reals(3, 2), "b": _reals(3, 4)}, {}),
    (op("DepthToSpace", "x", "y", blocksize=2, mode="CRD"), {"x": X}, {}),
    (op("DepthToSpace", "x", "y", blocksize=2), {"x": X}, {}),
    (op("SpaceToDepth", "x", "y", blocksize=3), {"x": X}, {}),
    (op("Squeeze", "a d", "y"), {"a": _reals(3, 1, 2, 1)}, {"d": np.array([-1])}),
    (op("Unsqueeze", "a d", "y"), {"a": _reals(3, 2)}, {"d": np.array([0, 2])}),
    (op("Resize", "x - s", "y", mode="nearest"), {"x": X}, {"s": np.array([1, 1, 2, 1.5], np.float32)}),
    (
        op("Resize", "x - s", "y", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        {"x": X},
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    (op("Resize", "x - s", "y", mode="linear"), {"x": X}, {"s": np.array([1, 1, 2, 0.5], np.float32)}),
    (
        op("Resize", "x - - z", "y", mode="linear", coordinate_transformation_mode="align_corners"),
        {"x": X},
        {"z": np.array([2, 4, 9, 4])},
    ),
    (op("ArgMax", "x", "y", axis=2), {"x": np.round(X)}, {}),
    (op("ArgMin", "x", "y", axis=1, keepdims=0, select_last_index=1), {"x": np.round(X)}, {}),
    (
        op("LSTM", "x w r b", "y", hidden_size=5, direction="bidirectional"),
        {"x": _reals(7, 2, 3)},
        {"w": _reals(2, 20, 3), "r": _reals(2, 20, 5), "b": _reals(2, 40)},
    ),
    (
        op("LSTM", "x w r - - h c", "y", hidden_size=4, direction="reverse"),
        {"x": _reals(6, 2, 3)},
        {"w": _reals(1, 16, 3), "r": _reals(1, 16, 4), "h": _reals(1, 2, 4), "c": _reals(1, 2, 4)},
    ),
    (
        op("LSTM", "x w r - - h c", "y", hidden_size=4),
        {"x": _reals(1, 2, 3)},
        {"w": _reals(1, 16, 3), "r": _reals(1, 16, 4), "h": _reals(1, 2, 4), "c": _reals(1, 2, 4)},
    ),
    (
        op("GRU", "x w r b", "y", hidden_size=5, direction="bidirectional"),
        {"x": _reals(7, 2, 3)},
        {"w": _reals(2, 15, 3), "r": _reals(2, 15, 5), "b": _reals(2, 30)},
    ),
    (
        op("RNN", "x w r", "y", hidden_size=5, activations=("Relu",)),
        {"x": _reals(3, 2, 3)},
        {"w": _reals(1, 5, 3), "r": _reals(1, 5, 5)},
    ),
    (op("TopK", "x k", "y z", axis=1), {"x": np.round(X)}, {"k": np.array([3])}),
    (op("TopK", "x k", "y z", largest=0), {"x": X}, {"k": np.array([2])}),
    (op("Greater", "x w", "y"), {"x": X}, {"w": _reals(6)}),
    (op("Cast", "x", "y", to=7), {"x": X}, {}),
    *((op(kind, "x w", "y"), {"x": X > 0}, {"w": _reals(6) > 0}) for kind in ("And", "Or", "Xor")),
    (op("Not", "x", "y"), {"x": X > 0}, {}),
]
OF_NUMPY = {"float32": "f32", "int64": "i64", "bool": "bool"}
INTEGER_RESULTS = {
    "ArgMax": "i64",
    "ArgMin": "i64",
    "Cast": "i64",
    **dict.fromkeys(("And", "Greater", "Not", "Or", "Xor"), "bool"),
}


def _planned(one, inputs, constants):
    kinds = {name: OF_NUMPY[array.dtype.name] for name, array in inputs.items()}
    kinds |= {"y": INTEGER_RESULTS.get(one.type, "f32"), "z": "i64"}
    shapes = {name: array.shape for name, array in inputs.items()}
    graph = model([one], inputs=shapes, outputs={"y": None}, constants=constants, dtypes=kinds)
    floats = [n for n in one.inputs if n and graph.values[n].is_float]
    return graph, plan_of(graph, [(["y"], " ".join(floats), "y" if kinds["y"] == "f32" else "")], {})


def test_each_op_computes_what_onnxruntime_does():
    """Paddings, groups, dilations, negative axes and steps among them; within a few last places."""
    made = [(*_planned(*case), case[1], case[0]) for case in CASES]
    jobs = [
        (EXPORTERS["stablehlo"](graph, plan).decode(), list(inputs.values()))
        for graph, plan, inputs, _ in made
    ]
    for (graph, plan, inputs, one), (got,) in zip(made, hlo.evaluated(jobs), strict=True):
        wanted = evaluate(graph, plan, inputs).outputs["y"]
        assert got.shape == wanted.shape, one
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=4e-6, err_msg=str(one))


@pytest.mark.parametrize(
    ("one", "inputs", "constants", "words"),
    [
        (op("Det", "x", "y"), {"x": X}, {}, "Det at 'op_y' has no form in StableHLO here"),
        (
            op("Pad", "x p", "y", mode="wrap"),
            {"x": X},
            {"p": np.zeros(8, np.int64)},
            "mode 'wrap'; constant, edge",
        ),
        (
            op("Reshape", "x s", "y"),
            {"x": X, "s": np.array([2, -1])},
            {},
            "operand 1 ('s') is known only at run time",
        ),
    ],
)
def test_what_it_has_no_form_for_is_refused(one, inputs, constants, words):
    """The kernel's port, the op, and what would do."""
    graph, plan = _planned(one, inputs, constants)
    with pytest.raises(UnsupportedExport) as caught:
        EXPORTERS["stablehlo"](graph, plan)
    assert str(caught.value).startswith("y.out[0] (in float): ")
    assert words in str(caught.value)
