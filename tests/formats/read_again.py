"""A small model of every operator that exporters write, in its forms; and its file, read again and run."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import planner
from planner.interpreter.models import ModelRunner
from tests.formats.litert.writer.test_operators import ALL, made
from tests.formats.tosa.writer.running import agreed, fed

SHAPE = (2, 4, 5, 6)
RNG = np.random.default_rng(8)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


W, COLUMN, SCALAR = normal(*SHAPE), normal(4, 1, 1), np.float32(0.7)
AXES = np.array([1, -1])
ONE_OPERAND = [
    "Abs",
    "Ceil",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "Celu",
    "Log",
]
TWO_OPERANDS = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Pow", "PRelu"]
COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


def operators() -> Iterator[tuple[str, str, Mapping[str, np.ndarray]]]:
    """Name, nodes from x to y, and constants."""
    for kind in ONE_OPERAND:
        head = "a = Abs (x) p = Add (a, c) " if kind in ("Log", "Reciprocal", "Sqrt") else ""
        yield kind, f"{head}y = {kind} ({'p' if head else 'x'})", {"c": np.float32(0.1)} if head else {}
    for kind in TWO_OPERANDS:
        if kind == "Pow":
            yield kind, "a = Abs (x) p = Add (a, c) y = Pow (p, w)", {"c": np.float32(0.1), "w": W}
            yield "square", "y = Pow (x, w)", {"w": np.float32(2)}
            continue
        flags = "<fmod = 1> " if kind == "Mod" else ""
        for name, other in {"all": W, "column": COLUMN, "scalar": SCALAR}.items():
            yield f"{kind} {name}", f"y = {kind} {flags}(x, w)", {"w": other}
        if kind not in ("Mod", "PRelu"):
            yield (
                f"{kind} behind",
                f"a = Abs (x) p = Add (a, c) y = {kind} (w, p)",
                {"c": np.float32(1), "w": W},
            )
    for kind in COMPARISONS:
        yield kind, f"q = {kind} (x, w) y = Where (q, x, w)", {"w": W}
        yield f"{kind} itself", f"q = {kind} (w, x) y = Cast <to = 1> (q)", {"w": COLUMN}
    for kind in ("And", "Or", "Xor"):
        text = f"q = Greater (x, w) r = Less (x, v) b = {kind} (q, r) n = Not (b) y = Where (n, x, v)"
        yield kind, text, {"w": W, "v": COLUMN}
    for kind in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"):
        yield kind, f"y = {kind} (x, axes)", {"axes": AXES}
        yield f"{kind} without", f"y = {kind} <keepdims = 0> (x, axes)", {"axes": AXES[:1]}
    for kind in ("Softmax", "LogSoftmax"):
        for axis in (1, -1):
            yield f"{kind} {axis}", f"y = {kind} <axis = {axis}> (x)", {}
    for kind in ("Sum", "Mean", "Max", "Min"):
        yield f"{kind} of three", f"y = {kind} (x, w, v)", {"w": W, "v": COLUMN}
    yield from products()
    yield from windows()
    for kind in ("ArgMax", "ArgMin"):
        yield kind, f"a = {kind} <axis = 2> (x) y = Cast <to = 1> (a)", {}
    yield "Clip low", "y = Clip (x, low)", {"low": np.float32(-0.2)}
    yield "Clip high", "y = Clip (x, , high)", {"high": np.float32(0.2)}
    yield "Clip", "y = Clip (x, low, high)", {"low": np.float32(-0.2), "high": np.float32(0.2)}
    yield "BatchNormalization", "y = BatchNormalization (x, s, b, m, v)", {
        "s": normal(4), "b": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 1}  # fmt: skip
    yield "InstanceNormalization", "y = InstanceNormalization (x, s, b)", {"s": normal(4), "b": normal(4)}
    yield "LayerNormalization", "y = LayerNormalization (x, s, b)", {"s": normal(6), "b": normal(6)}
    yield "LayerNormalization of two", "y = LayerNormalization <axis = 2> (x, s)", {"s": normal(5, 6)}


def products() -> Iterator[tuple[str, str, Mapping[str, np.ndarray]]]:
    """Matrix products, with constants on either side, turned, scaled and added to."""
    yield "MatMul", "y = MatMul (x, w)", {"w": normal(6, 3)}
    yield "MatMul behind", "y = MatMul (w, x)", {"w": normal(3, 5)}
    yield "MatMul of batches", "y = MatMul (x, w)", {"w": normal(4, 6, 3)}
    yield "MatMul of both", "t = Transpose <perm = [0, 1, 3, 2]> (x) y = MatMul (x, t)", {}
    flat = "f = Reshape (x, shape) "
    shape = np.array([8, 30])
    for turned_a, turned_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        w = normal(*((3, 8 if turned_a else 30) if turned_b else (8 if turned_a else 30, 3)))
        flags = f"<transA = {turned_a}, transB = {turned_b}, alpha = 0.5, beta = 2.0>"
        yield f"Gemm {flags}", f"{flat}y = Gemm {flags} (f, w, b)", {"shape": shape, "w": w, "b": normal(3)}
    yield "Gemm alone", f"{flat}y = Gemm (f, w)", {"shape": shape, "w": normal(30, 3)}


def windows() -> Iterator[tuple[str, str, Mapping[str, np.ndarray]]]:
    """Convolutions and pools."""
    w, b = normal(3, 4, 2, 3), normal(3)
    for flags in ("", "<strides = [2, 1], pads = [1, 0, 0, 2]>", "<dilations = [2, 2]>"):
        yield f"Conv {flags}", f"y = Conv {flags} (x, w, b)", {"w": w, "b": b}
    yield "Conv of groups", "y = Conv <group = 2> (x, w)", {"w": normal(6, 2, 2, 2)}
    yield "Conv by channel", "y = Conv <group = 4> (x, w)", {"w": normal(4, 1, 2, 2)}
    yield "ConvTranspose", "y = ConvTranspose <strides = [2, 1], pads = [1, 0, 0, 1]> (x, w, b)", {
        "w": normal(4, 3, 2, 3), "b": b}  # fmt: skip
    flags = "strides = [2, 3], output_shape = [9, 16]"
    yield "ConvTranspose sized", f"y = ConvTranspose <{flags}> (x, w)", {"w": normal(4, 3, 2, 3)}
    for kind, more in (("AveragePool", ", count_include_pad = 1"), ("AveragePool", ""), ("MaxPool", "")):
        flags = f"<kernel_shape = [2, 3], strides = [1, 2], pads = [1, 0, 0, 1]{more}>"
        yield f"{kind}{more}", f"y = {kind} {flags} (x)", {}
    yield "GlobalAveragePool", "y = GlobalAveragePool (x)", {}
    yield "GlobalMaxPool", "y = GlobalMaxPool (x)", {}


MODELS: Mapping[str, tuple[str, Sequence[int], Mapping[str, np.ndarray]]] = {
    **{name: (text, SHAPE, constants) for name, text, constants in operators()},
    **{f"model: {name}": case for name, case in ALL.items()},
}


TARGETS = {"litert": "litert-int8", "stablehlo": "stablehlo", "tosa": "tosa-int8"}


def results(name: str, to: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a model computes, and what its file in another format does once read.

    Raises:
      UnsupportedExport: the format has no form for it.
      ModelError: nothing here runs what was read.
    """
    text, shape, constants = MODELS[name]
    graph = planner.load_model(made(text, shape, constants))
    again = planner.load_model(planner.export(graph, planner.plan(graph, TARGETS[to]), to))
    sample = np.random.default_rng(0).uniform(-1.5, 2, shape).astype(np.float32)
    runs = [ModelRunner(each).run(dict.fromkeys(each.inputs, sample)) for each in (graph, again)]
    wanted, found = (list(run.values()) for run in runs)
    return wanted, found


def stored_results(name: str, to: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The results of a model's plan on integers, and those of its file, read and planned again.

    Raises:
      UnsupportedExport: the format has no form for it.
    """
    text, shape, constants = MODELS[name]
    graph = planner.load_model(made(text, shape, constants))
    samples = [{"i": np.random.default_rng(k).uniform(-1.5, 2, shape).astype(np.float32)} for k in range(2)]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(graph, TARGETS[to])
    again = planner.load_model(planner.export(graph, plan, to))
    given = list(samples[0].values()) if to == "litert" else fed(graph, plan, samples[0])
    feeds = dict(zip(again.inputs, given, strict=True))
    found = planner.evaluate(again, planner.plan(again, TARGETS[to]), feeds).outputs
    wanted = planner.evaluate(graph, plan, samples[0])
    return [(mine, theirs) for _, mine, theirs in agreed(wanted, plan, list(found.values()))]


def assert_is_the_model(name, format_):
    """What is written computes what the model does, in floats."""
    for mine, theirs in zip(*results(name, format_), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-4)


def assert_is_stored_alike(name, format_):
    """What is written computes what the plan does, on stored integers."""
    for mine, theirs in stored_results(name, format_):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-5)
