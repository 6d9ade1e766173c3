"""Plans of one kernel: the interpreter and the exported file agree on every stored integer."""

from typing import Any

import numpy as np
import pytest

from planner.constants.quantize import stored_dtype
from planner.interpreter.evaluate import evaluate
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform, storage, uniform
from tests.formats.plans import bias, i8, model, op, plan_of, u8, weight
from tests.interpreter.exported import assert_file_agrees, unshaped
from tests.interpreter.one_op import seeded

X = (1, 4, 6, 6)
SMALL: dict[str, np.ndarray] = {}


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def lone(case: Any, x: Uniform, y: Uniform, inputs: dict[str, tuple[int, ...]]) -> tuple[Graph, Any]:
    """One op as one kernel: data inputs of type `x`, results of type `y`, other operands constant."""
    kind, operands, constants, attributes = case
    dtypes = {"c": "bool"}
    names = operands.split()
    results = {"Split": "y y2", "TopK": "y indices"}.get(kind, "y")
    dtypes["indices"] = "i64"
    ops = [op(kind, operands, results, **attributes)]
    outputs = dict.fromkeys(results.split(), ())
    graph = model(
        ops,
        inputs={name: shape for name, shape in inputs.items() if name in names},
        outputs={},
        constants={name: array for name, array in constants.items() if name in names},
        dtypes={name: dtype for name, dtype in dtypes.items() if name in (*names, *results.split())},
    )
    graph = Graph(
        graph.name,
        graph.values,
        graph.ops,
        graph.inputs,
        tuple(outputs),
        graph.constants,
        opsets=graph.opsets,
    )
    reads = [name for name in names if name in ("x", "x2", "u")]
    writes = [name for name in outputs if name != "indices"]
    types = {**dict.fromkeys(reads, x), **dict.fromkeys(writes, y)}
    return graph, plan_of(graph, [(("y",), " ".join(reads), " ".join(writes))], types)


MOVEMENT = [
    ("Clip", "x lo hi", {"lo": np.float32(-0.7), "hi": np.float32(1.1)}, {}),
    ("Concat", "x x2", SMALL, {"axis": 1}),
    ("DepthToSpace", "x", SMALL, {"blocksize": 2}),
    ("Expand", "x s", {"s": ints(2, 4, 6, 6)}, {}),
    ("Flatten", "x", SMALL, {"axis": 2}),
    ("Gather", "x i", {"i": ints(3, 0, 0)}, {"axis": 2}),
    ("GlobalMaxPool", "x", SMALL, {}),
    ("Max", "x x2", SMALL, {}),
    ("MaxPool", "x", SMALL, {"kernel_shape": (3, 2), "strides": (2, 1), "auto_pad": "SAME_LOWER"}),
    ("MaxPool", "x", SMALL, {"kernel_shape": (2, 2), "dilations": (2, 3), "pads": (1, 0, 1, 1)}),
    ("MaxPool", "x", SMALL, {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    ("Pad", "x p", {"p": ints(0, 0, 1, 2, 0, 1, 0, 1)}, {}),
    ("Pad", "x p", {"p": ints(0, 0, 1, 2, 0, 1, 0, 1)}, {"mode": "reflect"}),
    ("Pad", "x p v", {"p": ints(0, 0, 1, 2, 0, 1, 0, 1), "v": np.float32(0.63)}, {}),
    ("ReduceMax", "x a", {"a": ints(2, 3)}, {"keepdims": 0}),
    ("Relu", "x", SMALL, {}),
    ("Reshape", "x s", {"s": ints(4, -1)}, {}),
    ("Resize", "x - f", {"f": np.array([1, 1, 2, 1.5], np.float32)}, {"mode": "nearest"}),
    ("ScatterND", "x i u", {"i": ints(0).reshape(1, 1)}, {}),
    ("Slice", "x b e a t", {"b": ints(5, 0), "e": ints(-9, 4), "a": ints(2, 3), "t": ints(-2, 1)}, {}),
    ("SpaceToDepth", "x", SMALL, {"blocksize": 3}),
    ("Split", "x n", {"n": ints(1, 3)}, {"axis": 1}),
    ("Squeeze", "x a", {"a": ints(0)}, {}),
    ("Tile", "x r", {"r": ints(1, 2, 1, 2)}, {}),
    ("TopK", "x k", {"k": ints(2)}, {"axis": 3}),
    ("Transpose", "x", SMALL, {"perm": (0, 3, 1, 2)}),
    ("Trilu", "x", SMALL, {"upper": 1}),
    ("Unsqueeze", "x a", {"a": ints(0, 3)}, {}),
    ("Where", "c x x2", {"c": np.array([[True, False] * 3] * 6)}, {}),
]


@pytest.mark.parametrize("case", MOVEMENT, ids=lambda case: case[0])
@pytest.mark.parametrize(
    "kind", [u8(0.02, 100), i8(0.02, -13), uniform(storage("u16"), 2e-4, 30000)], ids=str
)
def test_movers(case, kind):
    """One type on all ports: stored integers move, what is filled in is real zero (or the given real)."""
    graph, plan = lone(case, kind, kind, {"x": X, "x2": X, "u": X})
    rng = seeded(case[0], kind)
    sample = {name: 2 * floats(rng, *X) for name in graph.inputs}
    assert assert_file_agrees(graph, plan, [sample]) > 0


TABLES = [
    ("AveragePool", "x", SMALL, {"kernel_shape": (3, 2), "strides": (2, 1), "auto_pad": "SAME_UPPER"}),
    ("AveragePool", "x", SMALL, {"kernel_shape": (3, 3), "pads": (1, 1, 0, 2), "count_include_pad": 1}),
    ("AveragePool", "x", SMALL, {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    ("AveragePool", "x", SMALL, {"kernel_shape": (2, 2), "dilations": (2, 1)}),
    ("Add", "x x2", SMALL, {}),
    ("Concat", "x x2", SMALL, {"axis": -1}),
    ("GlobalAveragePool", "x", SMALL, {}),
    ("LeakyRelu", "x", SMALL, {"alpha": 0.2}),
    ("Mul", "x x2", SMALL, {}),
    ("Sigmoid", "x", SMALL, {}),
    ("Softmax", "x", SMALL, {"axis": 1}),
    ("Sub", "x x2", SMALL, {}),
    ("Tanh", "x", SMALL, {}),
    ("Where", "c x x2", {"c": np.array([[True, False] * 3] * 6)}, {}),
    ("Clip", "x lo", {"lo": np.float32(-0.7)}, {}),
    ("MaxPool", "x", SMALL, {"kernel_shape": (2, 2)}),
]
PAIRS = [
    (u8(0.02, 100), u8(0.031, 60)),
    (i8(0.02, -13), i8(0.011, 5)),
    (u8(0.02, 100), i8(0.03, 0)),
    (uniform(storage("i16"), 3e-4), uniform(storage("i16"), 2.3e-4, 99)),
    (u8(0.02, 100), uniform(storage("u8", 3, 200), 0.03, 60)),
]


@pytest.mark.parametrize("case", TABLES, ids=lambda case: case[0])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].storage}-{pair[1].storage}")
def test_computing_kernels(case, pair):
    """Two types: an integer kernel where there is one for them, else float in between."""
    graph, plan = lone(case, *pair, {"x": X, "x2": X})
    rng = seeded(case, pair)
    sample = {name: 2 * floats(rng, *X) for name in graph.inputs}
    assert assert_file_agrees(graph, plan, [sample]) == 1


CONVS = [
    ((2, 6, 9, 8), (4, 6, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
    ((1, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    ((1, 6, 9, 8), (6, 2, 2, 3), {"group": 3, "auto_pad": "SAME_LOWER", "strides": (1, 2)}),
    ((1, 3, 17), (5, 3, 4), {"strides": (3,), "auto_pad": "VALID"}),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"pads": (1, 1, 0, 0, 1, 1)}),
]


@pytest.mark.parametrize("case", CONVS, ids=lambda case: "x".join(map(str, case[0])))
@pytest.mark.parametrize("act", [u8, i8])
@pytest.mark.parametrize("tail", ["", "Relu", "Clip"])
def test_conv(case, act, tail):
    """Per-channel weights, a bias, a fused activation whose bounds lie inside the storage."""
    shape, weights, attributes = case
    rng = seeded(case, act.__name__, tail)
    w, b = floats(rng, *weights), floats(rng, weights[0])
    ops = [op("Conv", "x w b", "t" if tail else "y", **attributes)]
    ops += [op(tail, "t lo hi" if tail == "Clip" else "t", "y")] if tail else []
    bounds = {"lo": np.float32(-0.5), "hi": np.float32(3)} if tail == "Clip" else {}
    graph = model(ops, inputs={"x": shape}, outputs={"y": ()}, constants={"w": w, "b": b, **bounds})
    graph = unshaped(graph)
    x, wk = act(0.03, 7), weight(w)
    names = ("t", "y") if tail else ("y",)
    types = {"x": x, "w": wk, "b": bias(x, wk), "y": act(0.05, -4 if act is i8 else 90)}
    plan = plan_of(graph, [(names, "x w b", "y")], types)
    assert assert_file_agrees(graph, plan, [{"x": 2 * floats(rng, *shape)}]) == 1


GEMMS = [
    ("Gemm", (5, 7), (7, 4), {}),
    ("Gemm", (7, 5), (4, 7), {"transA": 1, "transB": 1}),
    ("Gemm", (5, 7), (7, 4), {"alpha": 0.3}),
    ("Gemm", (5, 7), (7, 4), {"beta": 2.0}),
    ("MatMul", (2, 3, 5, 7), (7, 4), {}),
    ("MatMul+Add", (2, 5, 7), (7, 4), {}),
    ("MatMul+Add", (5, 7), (7, 4), {}),
]


@pytest.mark.parametrize("case", GEMMS, ids=lambda case: f"{case[0]}{len(case[1])}{case[3]}")
@pytest.mark.parametrize("act", [u8, i8])
def test_matrix_products(case, act):
    kind, shape, weights, attributes = case
    rng = seeded(case, act.__name__)
    w, b = floats(rng, *weights), floats(rng, 4)
    x, y = act(0.03, 7), act(0.1, 20)
    wk = weight(w, 0 if attributes.get("transB") else 1)
    bk = uniform(storage("i32"), [attributes.get("alpha", 1.0) * x.scale * s for s in wk.scales], axis=0)
    ops = {
        "Gemm": [op("Gemm", "x w b", "y", **attributes)],
        "MatMul": [op("MatMul", "x w", "y")],
        "MatMul+Add": [op("MatMul", "x w", "t"), op("Add", "b t", "y")],
    }[kind]
    names, reads = tuple(o.outputs[0] for o in ops), "x w" if kind == "MatMul" else "x w b"
    constants = {"w": w} if kind == "MatMul" else {"w": w, "b": b}
    graph = unshaped(model(ops, inputs={"x": shape}, outputs={"y": ()}, constants=constants))
    plan = plan_of(graph, [(names, reads, "y")], {"x": x, "w": wk, "b": bk, "y": y})
    assert assert_file_agrees(graph, plan, [{"x": 2 * floats(rng, *shape)}]) == 1


def test_batched_product_of_two_activations():
    rng = seeded("attention")
    graph = unshaped(
        model(
            [op("MatMul", "x z", "y")],
            inputs={"x": (2, 3, 5, 7), "z": (2, 1, 7, 4)},
            outputs={"y": ()},
            constants={},
        )
    )
    plan = plan_of(graph, [(("y",), "x z", "y")], {"x": u8(0.02, 3), "z": u8(0.03, 130), "y": u8(0.1, 99)})
    assert_file_agrees(graph, plan, [{"x": floats(rng, 2, 3, 5, 7), "z": floats(rng, 2, 1, 7, 4)}])


@pytest.mark.parametrize("act", [u8, i8])
def test_conv_transpose_runs_in_float(act):
    rng = seeded("transpose", act.__name__)
    w = floats(rng, 3, 5, 3, 2)
    graph = unshaped(
        model(
            [op("ConvTranspose", "x w", "y", strides=(2, 1), pads=(1, 0, 0, 1))],
            inputs={"x": (1, 3, 4, 5)},
            outputs={"y": ()},
            constants={"w": w},
        )
    )
    plan = plan_of(graph, [(("y",), "x w", "y")], {"x": act(0.03, 7), "w": weight(w, 1), "y": act(0.1, 9)})
    assert_file_agrees(graph, plan, [{"x": floats(rng, 1, 3, 4, 5)}])


ARITHMETICS = ("exact_even", "gemmlowp", "tosa_double", "tosa_single")
DOUBLE = ("gemmlowp", "tosa_double")
INTEGER_CASES = [
    case for case in TABLES if case[0] not in ("Clip", "LeakyRelu", "Sigmoid", "Softmax", "Tanh")
]


@pytest.mark.parametrize("case", INTEGER_CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].storage}-{pair[1].storage}")
def test_integer_arithmetics_are_a_step_from_float(case, pair):
    """Each rounds the same real number; exact_even is never more than half a step from it."""
    graph, plan = lone(case, *pair, {"x": X, "x2": X})
    rng = seeded(case, pair)
    sample = {name: 2 * floats(rng, *X) for name in graph.inputs}
    near = evaluate(graph, plan, sample, arithmetic="float32_spec").stored["y"].astype(int)
    for arithmetic in ARITHMETICS:
        got = evaluate(graph, plan, sample, arithmetic=arithmetic).stored["y"]
        assert got.dtype == stored_dtype(pair[1].storage)
        steps = np.abs(got.astype(int) - near)
        assert steps.max() <= 1, arithmetic
        # Double rounding is off by up to 3/4 of a step, so it is a step away more often.
        assert arithmetic in DOUBLE or (steps > 0).mean() < 0.1, arithmetic


@pytest.mark.parametrize("act", [u8, i8])
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_linear_kernels_in_integer_arithmetics(act, arithmetic):
    """Conv, Gemm, MatMul+Add and a transposed convolution with integer kernels of their own."""
    rng = seeded("linear", act.__name__)
    w, v, t = floats(rng, 4, 3, 3, 3), floats(rng, 4, 5), floats(rng, 4, 2, 3, 3)
    b, d = floats(rng, 4), floats(rng, 5)
    ops = [
        op("Conv", "x w b", "y"),
        op("ConvTranspose", "y t", "z", strides=(2, 1)),
        op("MatMul", "m v", "p"),
        op("Add", "p d", "n"),
        op("Gemm", "k v d", "g"),
    ]
    inputs = {"x": (1, 3, 8, 8), "m": (2, 3, 4), "k": (6, 4)}
    constants = {"w": w, "v": v, "t": t, "b": b, "d": d}
    graph = unshaped(model(ops, inputs=inputs, outputs={"z": (), "n": (), "g": ()}, constants=constants))
    x, y, wk, vk = act(0.03, 7), act(0.1, 20), weight(w), weight(v, 1)
    types = {"x": x, "w": wk, "b": bias(x, wk), "y": y, "t": weight(t, 1), "z": act(0.4, 60)}
    types |= {"m": x, "k": x, "v": vk, "d": bias(x, vk), "n": act(0.05, 90), "g": act(0.05, 90)}
    kernels = [
        (("y",), "x w b", "y"), (("z",), "y t", "z"), (("p", "n"), "m v d", "n"), (("g",), "k v d", "g")
    ]  # fmt: skip
    plan = plan_of(graph, kernels, types)
    sample = {name: floats(rng, *shape) for name, shape in inputs.items()}
    near = evaluate(graph, plan, sample, arithmetic="float32_spec").stored
    got = evaluate(graph, plan, sample, arithmetic=arithmetic).stored
    for name in ("y", "n", "g"):
        steps = np.abs(got[name].astype(int) - near[name].astype(int))
        assert steps.max() <= 1
        assert arithmetic in DOUBLE or (steps > 0).mean() < 0.02
    assert np.abs(got["z"].astype(int) - near["z"].astype(int)).max() <= 2
