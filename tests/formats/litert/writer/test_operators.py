"""Small models of a few operators, planned for litert-int8: every stored integer in LiteRT's interpreter."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.litert.writer.write import write_litert
from planner.interpreter.evaluate import Interpreter
from tests.formats.litert.writer.running import integers, kernels_for, runtime_target, told, with_all_results
from tests.formats.tosa.writer.test_operators import CASES, IMAGE, made, weights
from tests.oracles import litert

# Ops that no row takes run in float, and LiteRT has no operator for these.
REFUSED = {
    "conv of three axes": "runs Conv in float",
    "tables": "runs Erf in float",
    "the largest": "runs TopK in float",
}
OWN = {
    "softmax of the channels": ("y = Softmax <axis=1> (x)", IMAGE, {}),
    "sixfold": (
        "h = Conv (x, w) y = Clip (h, lo, hi)",
        IMAGE,
        {"w": weights(5, 4, 1, 1) * 9, "lo": np.float32(0), "hi": np.float32(6)},
    ),
    "a clip that no operator has": (
        "y = Clip (x, lo, hi)",
        IMAGE,
        {"lo": np.float32(-0.3), "hi": np.float32(0.7)},
    ),
    "a float island": ("q = Mul (x, x) s = Sqrt (q) y = Tanh (s)", IMAGE, {}),
    "joined on one grid": ("a = Mul (x, c) y = Concat <axis=1> (x, a)", IMAGE, {"c": np.float32(7)}),
    "of groups": ("y = Conv <group=2> (x, w)", IMAGE, {"w": weights(6, 2, 3, 3)}),
    "steps": (
        "y = Slice (x, s, e, a, t)",
        IMAGE,
        {"s": np.array([1]), "e": np.array([99]), "a": np.array([3]), "t": np.array([4])},
    ),
    "upsampled by centres": (
        """y = Resize <mode="nearest", nearest_mode="round_prefer_floor"> (x, , , n)""",
        IMAGE,
        {"n": np.array([1, 4, 18, 33])},
    ),
    "transposed conv of one axis, padded": (
        "y = ConvTranspose <strides=[3], pads=[2,1], output_padding=[1]> (x, w, b)",
        (2, 3, 7),
        {"w": weights(3, 5, 4), "b": weights(5)},
    ),
    "transposed conv of one axis, whole": (
        "y = ConvTranspose <strides=[2]> (x, w)",
        (1, 3, 7),
        {"w": weights(3, 5, 2)},
    ),
    "linear, in the corners": (
        """y = Resize <mode="linear", coordinate_transformation_mode="align_corners"> (x, , f)""",
        IMAGE,
        {"f": np.array([1, 1, 0.6, 1.4], np.float32)},
    ),
    "argmax": ("a = ArgMax <axis=1, keepdims=0> (x) y = Cast <to=1> (a)", IMAGE, {}),
    "an average in the windows of SAME": (
        "y = AveragePool <kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 1]> (x)",
        (1, 4, 8, 9),
        {},
    ),
    "an average whose padding counts": (
        "y = AveragePool <kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 0], count_include_pad=1> (x)",
        IMAGE,
        {},
    ),
    # Of two scales the runtime compares rounded integers: see docs/litert.md.
    "compared on one grid": (
        "t = Slice (x, s, e, a, s) c = Less (x, t) y = Where (c, x, t)",
        IMAGE,
        {"s": np.array([-1]), "e": np.array([-99]), "a": np.array([3])},
    ),
}

ALL = {**CASES, **OWN}
# TRANSPOSEs: one in front where the model is channels first and has more than one channel, one behind.
FEW = {"turned and turned back": 2, "added by channel": 2, "depthwise": 2, "gemm": 0, "of groups": 2}
# PADs: the rest is SAME or VALID.
PADDED = {
    "conv with padding that is too much": 1,
    "conv, dilated": 1,
    "pad and cut": 1,
    "conv of one axis": 0,
    "conv, same padding": 0,
    "depthwise": 0,
}


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """By case: graph, plan, samples, the file's own parts and what LiteRT gave; all in two runs."""
    found, device = {}, runtime_target(islands="integer")
    for name, (text, shape, constants) in ALL.items():
        if name in REFUSED:
            continue
        rng = np.random.default_rng(0)
        samples = [{"i": rng.uniform(-1.5, 2, shape).astype(np.float32)} for _ in range(2)]
        graph = planner.load_model(made(text, shape, constants))
        graph = planner.annotate(graph, stats=planner.calibrate(graph, samples, method="minmax"))
        plan = planner.plan(graph, device)
        own = told(write_litert(graph, plan))
        graph, plan = with_all_results(graph, plan)
        found[name] = [graph, plan, samples, own, write_litert(graph, plan)]
    runs_on = {name: kernels_for(parts[4]) for name, parts in found.items()}
    for kernels in ("optimized", "reference"):
        names = [name for name in found if runs_on[name] == kernels]
        jobs = [(found[name][4], found[name][2]) for name in names]
        got = litert.run(tmp_path_factory.mktemp("litert"), jobs, kernels=kernels)
        for name, answer in zip(names, got, strict=True):
            found[name][4] = answer
    return found


@pytest.mark.parametrize("name", [name for name in ALL if name not in REFUSED])
def test_an_operator(computed, name):
    graph, plan, samples, own, found = computed[name]
    assert not isinstance(found, str), found
    interpreter = Interpreter(graph, plan)
    for sample, got in zip(samples, found, strict=True):
        wanted = interpreter.run(sample)
        assert set(got) == set(graph.outputs)
        for value, array in got.items():
            reals = wanted.outputs[value]
            assert array.shape == reals.shape
            pair = [integers(plan, value, item) for item in (array, reals)]
            np.testing.assert_array_equal(*pair, err_msg=value)
    if name in FEW:
        assert own.counts["TRANSPOSE"] == FEW[name]
    if name in PADDED:
        assert own.counts["PAD"] == PADDED[name]


def test_activations_stand_inside_where_the_runtime_has_them(computed):
    def alone(name):
        counts = computed[name][3].counts
        return {op: counts[op] for op in ("RELU", "RELU6", "MAXIMUM", "MINIMUM") if counts[op]}

    assert alone("sixfold") == alone("depthwise") == {}
    assert alone("a clip that no operator has") == {"MAXIMUM": 1, "MINIMUM": 1}


def test_what_is_float_has_casts_around_it(computed):
    _, plan, _, own, _ = computed["a float island"]
    assert [kernel.kernel for kernel in plan.kernels_in_order if kernel.row is None] == ["Sqrt"]
    assert own.counts == {"QUANTIZE": 2, "DEQUANTIZE": 2, "TANH": 2, "MUL": 1, "SQRT": 1}


@pytest.mark.parametrize("attributes", ["", ', coordinate_transformation_mode="asymmetric"'])
def test_a_linear_resize_by_a_scale_of_its_own_is_a_product(attributes, tmp_path):
    """6 tenths of 9 pixels are 5, which the runtime takes for 5 ninths: 3 dB, and the interpreter agreed."""
    shape, constants = (1, 4, 7, 9), {"f": np.array([1, 1, 0.6, 0.6], np.float32), "w": weights(4, 4, 1, 1)}
    text = f"""c = Conv (x, w) y = Resize <mode="linear"{attributes}> (c, , f)"""
    graph = planner.load_model(made(text, shape, constants))
    samples = [{"i": np.random.default_rng(0).uniform(-1.5, 2, shape).astype(np.float32)}]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(graph, "litert-int8")
    assert plan.kernels_in_order[-1].row is None
    data = planner.export(graph, plan, "litert")
    ((found,),) = litert.run(tmp_path, [(data, samples)])
    reals = planner.evaluate(graph, plan, samples[0]).outputs["y"]
    wanted = planner.run(made(text, shape, constants), samples[0])["y"]
    np.testing.assert_allclose(found["y"], reals, rtol=0, atol=1e-5)
    assert 10 * np.log10((wanted**2).sum() / ((reals - wanted) ** 2).sum()) > 30


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_operator_is_refused(name):
    text, shape, constants = CASES[name]
    graph = planner.load_model(made(text, shape, constants))
    sample = {"i": np.random.default_rng(0).uniform(-1.5, 2, shape).astype(np.float32)}
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [sample], method="minmax"))
    with pytest.raises(UnsupportedExport, match=REFUSED[name]) as caught:
        write_litert(graph, planner.plan(graph, runtime_target()))
    assert "; litert accepts" in str(caught.value) or "; litert has" in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "shape", "operators"),
    [
        ("pads=[1, 1, 1, 1], strides=[2, 2]", (1, 4, 8, 8), {"PAD": 1, "AVERAGE_POOL_2D": 1, "MUL": 1}),
        ("pads=[2, 1, 0, 1]", (2, 3, 7, 9), {"PAD": 1, "AVERAGE_POOL_2D": 1, "MUL": 1}),
        ("strides=[3, 3], ceil_mode=1", (1, 4, 7, 8), {"PAD": 1, "AVERAGE_POOL_2D": 1, "MUL": 1}),
        (
            "pads=[1, 0, 0, 1], strides=[2, 3], ceil_mode=1, count_include_pad=1",
            (1, 4, 6, 7),
            {"PAD": 1, "AVERAGE_POOL_2D": 1, "MUL": 1},
        ),
        (
            """auto_pad="SAME_LOWER", strides=[2, 2]""",
            (1, 4, 8, 8),
            {"PAD": 1, "AVERAGE_POOL_2D": 1, "MUL": 1},
        ),
    ],
)
def test_an_average_of_other_windows_is_planned_in_float(attributes, shape, operators, tmp_path):
    """No row has it, so the plan is lawful; the file pads with zeros and takes them out of the count."""
    graph = planner.load_model(made(f"y = AveragePool <kernel_shape=[3, 3], {attributes}> (x)", shape, {}))
    samples = [{"i": np.random.default_rng(0).uniform(-1.5, 2, shape).astype(np.float32)}]
    annotated = planner.annotate(graph, stats=planner.calibrate(graph, samples, method="minmax"))
    plan = planner.plan(annotated, runtime_target(islands="integer"))
    kernel = next(kernel for kernel in plan.kernels_in_order if kernel.kernel == "AveragePool")
    assert (kernel.row, "AveragePool." in kernel.reason) == (None, True)
    data = write_litert(annotated, plan)
    assert operators.items() <= told(data).counts.items()
    got = litert.run(tmp_path, [(data, samples)])[0][0]
    interpreter = Interpreter(annotated, plan)
    for value, array in interpreter.run(samples[0]).outputs.items():
        np.testing.assert_allclose(got[value], array, rtol=1e-6, atol=1e-6)
