"""Files open with `session.x64quantprecision`, which warnings and docs recommend, at every level."""

import itertools
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import pytest
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # tests replace the public one

import planner
from planner.errors import PlannerError
from planner.formats.onnx.sessions import session_options
from tests.awkward.job import samples_of
from tests.awkward.models import AWKWARD

LEVELS = ("extended", "all")
FORMATS = ("onnx-qdq", "onnx-qoperator", "onnx-qoperator-clip", "onnx-qcdq", "onnx-integer")
PRODUCTS = {
    "conv": ("float[1, 4, 5, 5]", (4, 4, 1, 1), "Conv({x}, {w})"),
    "conv_transpose": ("float[1, 4, 5, 5]", (4, 4, 1, 1), "ConvTranspose({x}, {w})"),
    "gemm": ("float[2, 4]", (4, 4), "Gemm({x}, {w})"),
    "gemm_turned": ("float[2, 4]", (4, 4), "Gemm<transB = 1>({x}, {w})"),
    "matmul": ("float[2, 4]", (4, 4), "MatMul({x}, {w})"),
}
TARGETS = ("onnxruntime-cpu", "tensorrt-int8", "qnn-htp", "litert-int8")
SIGNED = frozenset({"tensorrt-int8", "litert-int8"})
"""Activations of i8: the option gives QLinear operators weights of u8, and onnxruntime has no such kernel."""


def opened(data, level, *, exact=True):
    options = session_options(level, exact_products=exact)
    return InferenceSession(data, options, providers=["CPUExecutionProvider"])


def chain(kind, names, *, relu=False):
    """Products in a row, of weights of these names, all on one grid."""
    shape, size, call = PRODUCTS[kind]
    lines, last = [], "x"
    for i, name in enumerate(names):
        lines.append(f"p{i} = {call.format(x=last, w=name)}")
        last = f"p{i}"
        if relu:
            lines.append(f"r{i} = Relu({last})")
            last = f"r{i}"
    text = f"g ({shape} x) => ({shape} y) {{ {' '.join(lines)} y = Identity({last}) }}"
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    array = np.random.default_rng(5).normal(0, 0.5, size).astype(np.float32)
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(sign * array, name) for name, sign in {"w": 1, "v": -1}.items()
    )
    return planner.load_model(made.SerializeToString())


def written(graph, target):
    """The plan's files in those formats of onnxruntime that can say it, by name, and a sample."""
    samples = list(samples_of(graph))
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    device = planner.load_target(target)
    # As files for onnxruntime: those for another engine have no guards against its optimiser.
    device = replace(device, files=replace(device.files, reader="onnxruntime"))
    plan, files = planner.plan(ready, device), {}
    for form in FORMATS:
        if "qoperator" in form and target in SIGNED:
            continue
        try:
            files[form] = planner.export(ready, plan, form)
        except PlannerError:
            continue
    return files, samples[0]


@pytest.mark.parametrize("names", ["www", "wvw"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("relu", [False, True])
def test_products_that_share_a_weight_or_its_zero_point_open(kind, relu, target, names):
    files, sample = written(chain(kind, names, relu=relu), target)
    assert "onnx-qdq" in files
    # Q/DQ pairs around float operators are exact on every processor.
    (wanted,) = opened(files["onnx-qdq"], "none").run(None, dict(sample))
    for form, level in itertools.product(files, LEVELS):
        (found,) = opened(files[form], level).run(None, dict(sample))
        if "qoperator" in form:
            continue  # the option does not reach every QLinear operator
        assert np.sum((found - wanted) ** 2) <= 1e-2 * np.sum(wanted**2)


@pytest.mark.parametrize("name", AWKWARD)
def test_every_awkward_file_opens(name):
    """What onnxruntime opens without the option it opens with it."""
    try:
        files, _ = written(planner.load_model(AWKWARD[name]()), "onnxruntime-cpu")
    except PlannerError:
        return  # tests/awkward/test_job knows which ones, and the words
    for data, level in itertools.product(files.values(), LEVELS):
        opened(data, level)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_every_model_opens(models, target):
    for path in sorted(models.rglob("*.onnx")):
        if path.stat().st_size > 60_000_000:
            continue
        try:
            files, _ = written(planner.load_model(path), target)
        except PlannerError:
            continue
        for data, level in itertools.product(files.values(), LEVELS):
            opened(data, level)
