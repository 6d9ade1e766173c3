"""What a plan leaves in float, in formats with one word for it or several: the engines' numbers."""

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest

import planner
from planner.formats.onnx.composites.basics import BASICS
from tests.oracles import hlo, litert, tosa

RNG = np.random.default_rng(5)
IMAGE = (1, 4, 6, 5)


def weights(*shape):
    return RNG.uniform(-0.5, 0.5, shape).astype(np.float32)


def positive(*shape):
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


C = {"c": weights(4), "d": positive(4), "e": weights(4), "v": positive(4)}
SHORT = {"axes": np.array([2])}
# Nodes from x to y, constants.
CASES = {
    "BatchNormalization": ("y = BatchNormalization <epsilon=0.01> (x, d, c, e, v)", C),
    "Celu": ("y = Celu <alpha=0.5> (x)", {}),
    "Elu": ("y = Elu <alpha=0.7> (x)", {}),
    "GatherElements": (
        "t = ArgMax <axis=2, keepdims=1> (x)\n y = GatherElements <axis=2> (x, t)",
        {},
    ),
    "GatherElements, from behind": ("y = GatherElements <axis=-1> (x, k)", {"k": np.full((1, 4, 6, 2), -2)}),
    "Gelu": ("y = Gelu (x)", {}),
    "Gelu, tanh": ('y = Gelu <approximate="tanh"> (x)', {}),
    "HardSigmoid": ("y = HardSigmoid <alpha=0.3, beta=0.4> (x)", {}),
    "HardSwish": ("y = HardSwish (x)", {}),
    "InstanceNormalization": ("y = InstanceNormalization (x, d, c)", C),
    "IsNaN": ("t = IsNaN (x)\n y = Cast <to=1> (t)", {}),
    "LRN": ("y = LRN <size=3, alpha=0.5, beta=2.0, bias=1.5> (x)", {}),
    "LayerNormalization": ("y = LayerNormalization <axis=-1> (x, s, t)", {"s": positive(5), "t": weights(5)}),
    "LayerNormalization, two axes": ("y = LayerNormalization <axis=2> (x, s)", {"s": positive(6, 5)}),
    "LeakyRelu": ("y = LeakyRelu <alpha=0.2> (x)", {}),
    "Mish": ("y = Mish (x)", {}),
    "PRelu": ("y = PRelu (x, s)", {"s": weights(4, 1, 1)}),
    "ReduceL1": ("y = ReduceL1 <keepdims=1> (x, axes)", SHORT),
    "ReduceL2": ("y = ReduceL2 <keepdims=0> (x, axes)", SHORT),
    "ReduceLogSum": ("t = Abs (x)\n y = ReduceLogSum <keepdims=1> (t, axes)", SHORT),
    "ReduceLogSumExp": ("y = ReduceLogSumExp <keepdims=0> (x, axes)", SHORT),
    "ReduceSumSquare": ("y = ReduceSumSquare <keepdims=1> (x, axes)", SHORT),
    "Resize": ("""y = Resize <mode="linear"> (x, , f)""", {"f": np.array([1, 1, 0.7, 1.7], np.float32)}),
    "Resize of channels last": (
        """y = Resize <mode="linear", coordinate_transformation_mode="half_pixel_symmetric"> (x, , f)""",
        {"f": np.array([1, 1.5, 0.7, 1], np.float32)},
    ),
    "Selu": ("y = Selu (x)", {}),
    "Sign": ("y = Sign (x)", {}),
    "Softplus": ("y = Softplus (x)", {}),
    "Softsign": ("y = Softsign (x)", {}),
    "Tan": ("y = Tan (x)", {}),
    "ThresholdedRelu": ("y = ThresholdedRelu <alpha=0.4> (x)", {}),
    # With words of their own, which the cases above are made of.
    "ArgMax": ("t = ArgMax <axis=1> (x)\n y = Cast <to=1> (t)", {}),
    "AveragePool": ("y = AveragePool <kernel_shape=[2,3], strides=[2,1]> (x)", {}),
    "AveragePool, padded": ("y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1]> (x)", {}),
    "AveragePool, padding counts": (
        "y = AveragePool <kernel_shape=[3,3], pads=[1,0,1,1], count_include_pad=1> (x)",
        {},
    ),
    "Conv": (
        "y = Conv <strides=[2,1], pads=[1,0,1,1]> (x, w, b)",
        {"w": weights(3, 4, 3, 2), "b": weights(3)},
    ),
    "Conv, by channel": ("y = Conv <group=4, pads=[1,1,1,1]> (x, w)", {"w": weights(8, 1, 3, 3)}),
    "Conv, grouped": ("y = Conv <group=2> (x, w, b)", {"w": weights(6, 2, 2, 2), "b": weights(6)}),
    "ConvTranspose": (
        "y = ConvTranspose <strides=[2,2]> (x, w, b)",
        {"w": weights(4, 3, 2, 2), "b": weights(3)},
    ),
    "Max of three": ("t = Abs (x)\n u = Neg (x)\n y = Max (u, s, t)", {"s": weights(4, 1, 1)}),
    "Min of three": ("t = Abs (x)\n u = Neg (x)\n y = Min (u, s, t)", {"s": weights(4, 1, 1)}),
    "Where": ("t = Greater (x, z)\n y = Where (t, x, s)", {"z": np.float32(0.1), "s": weights(4, 1, 1)}),
}
READ = "q = Squeeze (x, zero)\n h = Slice (q, zero, three, two)\n g = Slice (h, zero, two, zero)\n"
"""The sequence, (4, 6, 5), and states, (2, 6, 3), that are computed."""
STATES = {"zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}
CASES |= {
    "LSTM": (
        READ + 'r, s, u = LSTM <hidden_size=3, direction="bidirectional"> (q, W, R, B, , g, g)\n'
        "l = Concat <axis=0> (s, u)\n m = ReduceSum <keepdims=0> (r, zero)\n y = Concat <axis=0> (l, m)",
        {"W": weights(2, 12, 5), "R": weights(2, 12, 3), "B": weights(2, 24), **STATES},
    ),
    "GRU": (
        READ + 'r, s = GRU <hidden_size=3, direction="bidirectional"> (q, W, R, B, , g)\n'
        "m = ReduceSum <keepdims=0> (r, zero)\n y = Concat <axis=0> (s, m)",
        {"W": weights(2, 9, 5), "R": weights(2, 9, 3), "B": weights(2, 18), **STATES},
    ),
    "GRU, reset behind": (
        READ + "o = Slice (g, zero, one, zero)\n"
        'r, s = GRU <hidden_size=3, direction="reverse", linear_before_reset=1> (q, W, R, B, , o)\n'
        "m = ReduceSum <keepdims=0> (r, zero)\n y = Concat <axis=0> (s, m)",
        {"W": weights(1, 9, 5), "R": weights(1, 9, 3), "B": weights(1, 18), "one": np.array([1]), **STATES},
    ),
}
FORMATS = {"litert": "litert-int8", "tosa": "tosa-int8", "stablehlo": "stablehlo"}


def model_of(name):
    nodes, constants = CASES[name]
    graph = onnx.parser.parse_graph(f"g (float[{','.join(map(str, IMAGE))}] x) => (float y) {{ {nodes} }}")
    graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


def sample(name):
    """Numbers on both sides of 0, large ones and NaN where an op is about them."""
    x = np.random.default_rng(len(name)).normal(0, 1.5, IMAGE).astype(np.float32)
    if name in ("Mish", "Softplus", "ReduceLogSumExp"):
        x[0, 0, 0, :3] = 120, -120, 89
    if name == "IsNaN":
        x[0, 0, 0, 0] = np.nan
    return x


def planned(name, target):
    model = planner.load_model(model_of(name))
    ready = planner.annotate(model, kernels={"*": "float"})
    return ready, planner.plan(ready, target)


@pytest.fixture(scope="module")
def wanted():
    found = {}
    for name in CASES:
        session = onnxruntime.InferenceSession(model_of(name), providers=["CPUExecutionProvider"])
        found[name] = session.run(None, {"x": sample(name)})[0]
    return found


def written(form):
    return {name: planner.export(*planned(name, FORMATS[form]), form) for name in CASES}


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the engine of each format gives for each case."""
    samples = {name: sample(name) for name in CASES}
    files = [(data, [{"x": samples[name]}]) for name, data in written("litert").items()]
    modules = [(data, [[samples[name]]]) for name, data in written("tosa").items()]
    programs = [(data.decode(), [samples[name]]) for name, data in written("stablehlo").items()]
    answers = {
        "litert": litert.run(tmp_path_factory.mktemp("litert"), files, kernels="optimized"),
        "tosa": tosa.run(tmp_path_factory.mktemp("tosa"), modules),
        "stablehlo": hlo.evaluated(programs),
    }
    return {form: dict(zip(CASES, found, strict=True)) for form, found in answers.items()}


def test_every_rule_has_a_case():
    assert set(BASICS) <= {name.partition(",")[0] for name in CASES}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_engines_compute_what_onnxruntime_does(computed, wanted, name, form):
    answer = computed[form][name]
    assert not isinstance(answer, str), answer
    while isinstance(answer, (list, tuple, dict)):
        answer = next(iter(answer.values())) if isinstance(answer, dict) else answer[0]
    np.testing.assert_allclose(np.asarray(answer, np.float64), wanted[name], rtol=2e-5, atol=2e-6)
