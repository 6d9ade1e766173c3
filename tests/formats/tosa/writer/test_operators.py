"""Small models of a few operators, planned for tosa-int8: every stored integer in the reference model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import planner
from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from tests.formats.tosa.writer.running import agreed, fed, with_all_results
from tests.oracles import tosa

IMAGE = (1, 4, 9, 11)
I64 = np.int64


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-0.5, 0.5, shape).astype(np.float32)


# Nodes as ONNX text from x, a Tanh of the input, to y; the shape of x; constants.
CASES: Mapping[str, tuple[str, Sequence[int], Mapping[str, np.ndarray]]] = {
    "conv with a rest": (
        "y = Conv <strides=[2,3]> (x, w, b)",
        IMAGE,
        {"w": weights(5, 4, 2, 3), "b": weights(5)},
    ),
    "conv with padding that is too much": (
        "y = Conv <strides=[2,2], pads=[1,1,1,1]> (x, w)",
        (1, 4, 8, 8),
        {"w": weights(5, 4, 3, 3)},
    ),
    "conv, same padding": (
        """y = Conv <auto_pad="SAME_UPPER", strides=[2,2]> (x, w)""",
        IMAGE,
        {"w": weights(5, 4, 3, 4)},
    ),
    "conv, dilated": (
        "y = Conv <dilations=[2,3], pads=[0,3,1,2]> (x, w)",
        IMAGE,
        {"w": weights(5, 4, 3, 3)},
    ),
    "conv of one axis": ("y = Conv <strides=[2], pads=[1,1]> (x, w)", (2, 4, 11), {"w": weights(6, 4, 3)}),
    "conv of three axes": (
        "y = Conv <pads=[1,0,1,0,1,0]> (x, w)",
        (1, 2, 4, 5, 6),
        {"w": weights(3, 2, 3, 2, 3)},
    ),
    "conv and clip": (
        "h = Conv (x, w) y = Clip (h, lo, hi)",
        IMAGE,
        {"w": weights(5, 4, 3, 3), "lo": np.float32(0.0), "hi": np.float32(1.0)},
    ),
    "depthwise": (
        "h = Conv <group=4, pads=[1,1,1,1], strides=[2,1]> (x, w, b) y = Relu (h)",
        IMAGE,
        {"w": weights(4, 1, 3, 3), "b": weights(4)},
    ),
    "depthwise, two results each": ("y = Conv <group=4> (x, w)", IMAGE, {"w": weights(8, 1, 2, 3)}),
    "depthwise of one axis": ("y = Conv <group=4> (x, w)", (1, 4, 9), {"w": weights(4, 1, 3)}),
    "transposed conv": (
        "y = ConvTranspose <strides=[2,3], pads=[1,0,0,2], output_padding=[1,0]> (x, w, b)",
        (1, 3, 4, 5),
        {"w": weights(3, 5, 3, 4), "b": weights(5)},
    ),
    "transposed conv of one axis": (
        "y = ConvTranspose <strides=[2], pads=[1,1]> (x, w)",
        (1, 3, 7),
        {"w": weights(3, 5, 3)},
    ),
    "gemm": ("y = Gemm <transB=1> (x, w, b)", (3, 20), {"w": weights(7, 20), "b": weights(7)}),
    "matmul of three axes": (
        "h = MatMul (x, w) y = Add (h, b)",
        (2, 3, 8),
        {"w": weights(8, 5), "b": weights(5)},
    ),
    "matmul of two tensors": ("t = Transpose <perm=[0,1,3,2]> (x) y = MatMul (x, t)", (2, 3, 4, 5), {}),
    "average, padding not counted": (
        "y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]> (x)",
        IMAGE,
        {},
    ),
    "average of 7": ("y = AveragePool <kernel_shape=[7,1], strides=[2,1]> (x)", IMAGE, {}),
    "average with a ceiling": (
        "y = AveragePool <kernel_shape=[2,2], strides=[2,2], ceil_mode=1> (x)",
        IMAGE,
        {},
    ),
    "average of the whole": ("y = AveragePool <kernel_shape=[9,11]> (x)", IMAGE, {}),
    "average of one axis": ("y = AveragePool <kernel_shape=[3]> (x)", (1, 4, 9), {}),
    "padding by name counted, as large as the whole": (
        """y = AveragePool <kernel_shape=[5,5], auto_pad="SAME_UPPER", count_include_pad=1> (x)""",
        (1, 4, 5, 5),
        {},
    ),
    "average of all": ("y = GlobalAveragePool (x)", IMAGE, {}),
    "maximum": ("y = MaxPool <kernel_shape=[3,2], pads=[1,0,1,1], strides=[2,2]> (x)", IMAGE, {}),
    "maximum with a ceiling": ("y = MaxPool <kernel_shape=[2,2], strides=[2,2], ceil_mode=1> (x)", IMAGE, {}),
    "maximum of one axis": ("y = MaxPool <kernel_shape=[3], strides=[3]> (x)", (1, 4, 11), {}),
    "maximum of all": ("y = GlobalMaxPool (x)", IMAGE, {}),
    "maximum of an axis": ("y = ReduceMax <keepdims=0> (x, a)", IMAGE, {"a": np.array([-1, 1], I64)}),
    "mean of axes": ("y = ReduceMean <keepdims=0> (x, a)", IMAGE, {"a": np.array([2, 3], I64)}),
    "pad and cut": ("h = Pad (x, p) y = Tanh (h)", IMAGE, {"p": np.array([0, 0, 2, -1, 0, 1, -3, 2], I64)}),
    "reflected": (
        """h = Pad <mode="reflect"> (x, p) y = Tanh (h)""",
        IMAGE,
        {"p": np.array([0, 0, 2, 1, 0, 0, 3, 2], I64)},
    ),
    "slices": (
        "y = Slice (x, s, e, a, t)",
        IMAGE,
        {
            "s": np.array([8, 1], I64),
            "e": np.array([-20, 9], I64),
            "a": np.array([2, 3], I64),
            "t": np.array([-2, 1], I64),
        },
    ),
    "gathered": ("y = Gather <axis=2> (x, p)", IMAGE, {"p": np.array([[0, -1, 3], [3, 3, 8]], I64)}),
    "gathered by tuples": ("y = GatherND (x, p)", (4, 5, 3), {"p": np.array([[[0, -1], [3, 2]]], I64)}),
    "gathered by elements": (
        "y = GatherElements <axis=1> (x, p)",
        (2, 4, 3),
        {"p": np.array([[[3, -1, 0]], [[1, 1, 2]]], I64)},
    ),
    "reversed sequences": (
        "y = ReverseSequence <time_axis=1, batch_axis=0> (x, n)",
        (2, 4, 3),
        {"n": np.array([3, 4], I64)},
    ),
    "doubled": (
        """h = Resize <mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">
        (x, , s) y = Tanh (h)""",
        IMAGE,
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resized": (
        """h = Resize <mode="nearest"> (x, , , n) y = Tanh (h)""",
        IMAGE,
        {"n": np.array([1, 4, 5, 17], I64)},
    ),
    "tiled": ("h = Tile (x, r) y = Tanh (h)", (1, 2, 3), {"r": np.array([2, 3, 1], I64)}),
    "expanded": ("h = Expand (x, s) y = Tanh (h)", (2, 1, 3), {"s": np.array([4, 2, 5, 3], I64)}),
    "depth to space": ("y = DepthToSpace <blocksize=2> (x)", (1, 12, 3, 5), {}),
    "depth to space, columns first": (
        """y = DepthToSpace <blocksize=2, mode="CRD"> (x)""",
        (1, 12, 3, 5),
        {},
    ),
    "space to depth": ("y = SpaceToDepth <blocksize=2> (x)", (1, 3, 4, 6), {}),
    "split and joined": ("a, b = Split <axis=1, num_outputs=2> (x) y = Concat <axis=2> (b, a)", IMAGE, {}),
    "turned and turned back": (
        """h = Conv (x, w) t = Transpose <perm=[0,2,3,1]> (h) r = Relu (t) u = Transpose <perm=[0,3,1,2]> (r)
        y = Conv (u, v)""",
        IMAGE,
        {"w": weights(5, 4, 3, 3), "v": weights(6, 5, 1, 1)},
    ),
    "chosen": (
        "h = Sigmoid (x) y = Where (c, x, h)",
        IMAGE,
        {"c": np.random.default_rng(0).random((4, 1, 11)) < 0.5},
    ),
    "greatest and least": ("h = Tanh (x) g = Max (x, h) y = Min (g, x, h)", IMAGE, {}),
    "scale and offset by channel": (
        "h = Mul (x, g) y = Add (h, o)",
        IMAGE,
        {"g": weights(4, 1, 1) + 1, "o": weights(4, 1, 1)},
    ),
    "tables": ("a = Elu (x) b = Erf (a) c = HardSwish (b) y = LeakyRelu <alpha=0.2> (c)", IMAGE, {}),
    "added by channel": (
        "h = Conv (x, w) y = Add (h, o)",
        IMAGE,
        {"w": weights(5, 4, 3, 3), "o": weights(5, 1, 1)},
    ),
    "powers in float": (
        "s = Pow (x, four) r = Sqrt (s) c = Pow (x, three) t = Sub (r, c) y = Tanh (t)",
        (2, 3, 16),
        {"four": np.float32(4), "three": np.float32(3)},
    ),
    "normalised by batch": (
        "h = BatchNormalization (x, g, o, m, v) y = Tanh (h)",
        (2, 3, 5),
        {"g": weights(3) + 1, "o": weights(3), "m": weights(3), "v": np.float32([0.5, 1, 2])},
    ),
    "the largest": ("h, at = TopK <axis=1> (x, one) y = Tanh (h)", (2, 5, 3), {"one": np.asarray([1], I64)}),
    "normalised in float": (
        "h = LayerNormalization (x, g, o) y = Tanh (h)",
        (2, 3, 16),
        {"g": weights(16) + 1, "o": weights(16)},
    ),
}
IN_FLOAT = {
    "gathered by elements": ["GatherElements"],
    "gathered by tuples": ["GatherND"],
    "normalised by batch": ["BatchNormalization"],
    "normalised in float": ["LayerNormalization"],
    "powers in float": ["Pow", "Pow"],
    "reversed sequences": ["ReverseSequence"],
    "the largest": ["TopK"],
}
# TRANSPOSEs: one in front where the model is channels first and has more than one channel, one behind.
FEW = {"turned and turned back": 2, "tables": 0, "added by channel": 2, "depthwise": 2, "gemm": 0}


def made(text: str, shape: Sequence[int], constants: Mapping[str, np.ndarray]) -> bytes:
    sizes = ",".join(map(str, shape))
    head = '<ir_version: 10, opset_import: ["" : 21]> g '
    model = onnx.parser.parse_model(f"{head} (float[{sizes}] i) => (float y) {{ x = Tanh (i) {text} }}")
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items())
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString()


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """By case: graph, plan, samples, module and what the reference model gave; all in one run."""
    # Kernels beside those in float are to be stored here, not islands: what is tried is their arithmetic.
    made_of, device = {}, replace(planner.load_target("tosa-int8"), islands="integer")
    for name, (text, shape, constants) in CASES.items():
        rng = np.random.default_rng(0)
        samples = [{"i": rng.uniform(-1.5, 2, shape).astype(np.float32)} for _ in range(2)]
        graph = planner.load_model(made(text, shape, constants))
        graph = planner.annotate(graph, stats=planner.calibrate(graph, samples, method="minmax"))
        plan = planner.plan(graph, device)
        seen = with_all_results(graph, plan)
        made_of[name] = (*seen, samples, write_tosa(graph, plan).decode(), write_tosa(*seen))
    jobs = [
        (data, [fed(graph, plan, sample) for sample in samples])
        for graph, plan, samples, _, data in made_of.values()
    ]
    found = tosa.run(tmp_path_factory.mktemp("tosa"), jobs)
    return {name: (*made_of[name][:4], got) for name, got in zip(made_of, found, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_an_operator(computed, name):
    graph, plan, samples, text, found = computed[name]
    assert not isinstance(found, str), found
    interpreter = Interpreter(graph, plan)
    floats = [kernel.kernel for kernel in plan.kernels_in_order if kernel.row is None]
    assert floats == IN_FLOAT.get(name, [])
    for sample, got in zip(samples, found, strict=True):
        for value, wanted, array in agreed(interpreter.run(sample), plan, got):
            assert array.shape == wanted.shape
            np.testing.assert_array_equal(array, wanted, value)
    if name in FEW:
        assert text.count('"tosa.transpose"') == FEW[name]


def test_averages_within_one_type_are_the_operator(computed):
    """All but the global one, and each rounds as the operator does: `test_an_operator`."""
    averages = {name: text for name, (*_, text, _) in computed.items() if name.startswith("average")}
    assert [name for name, text in averages.items() if "tosa.avg_pool2d" not in text] == ["average of all"]


def test_every_line_of_a_module_is_of_tosa_or_func(computed):
    for *_, text, _ in computed.values():
        names = {line.split('"')[1] for line in text.splitlines() if line.strip().startswith("%")}
        assert {name.split(".")[0] for name in names} == {"tosa"}
