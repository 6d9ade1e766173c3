"""Every row of ethos-u55 against Vela: files for the NPU, limits that are said, a page with the list."""

import json
import re
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

import planner
from planner.formats.litert.writer.write import write_litert
from planner.ir.types.qtypes import AnyType, storage
from planner.target_tests.probe_kit import make_kit
from tests.formats.litert.writer.test_vela import ROOT, VELA, with_stored_interface
from tests.formats.tosa.writer.test_operators import made, weights

pytestmark = pytest.mark.skipif(not VELA.exists(), reason="no .oracles/vela: run make oracles")

SCRIPT = ROOT / "tests" / "oracles" / "vela_run.py"
PAGE = ROOT / "docs" / "targets" / "ethos-u55-lines.md"
REFUSED = {"LSTM-1": "the initial state", "LSTM-2": "LSTM of 16-bit activations"}
"""Items of the kit that have no file; another item has the first row's."""
IMAGE = (1, 4, 8, 8)

FLOOR = """mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor\""""
NEAREST = f"y = Resize <{FLOOR}> (x, , , n)"

# (ops on x, its shape, constants): on the row, and compiled for the NPU.
INSIDE = {
    "conv of stride 3": ("y = Conv <strides=[1, 3]> (x, w)", IMAGE, {"w": weights(6, 4, 3, 3)}),
    "conv of 64 rows": ("y = Conv (x, w)", (1, 2, 70, 3), {"w": weights(3, 2, 64, 1)}),
    "conv of 65536 products": ("y = Conv (x, w)", (1, 65536, 1, 1), {"w": weights(1, 65536, 1, 1)}),
    "transposed": (
        "y = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]> (x, w)",
        IMAGE,
        {"w": weights(4, 5, 3, 3)},
    ),
    "transposed in one line": (
        "y = ConvTranspose <strides=[1, 2]> (x, w)",
        (1, 4, 1, 8),
        {"w": weights(4, 5, 1, 3)},
    ),
    "product of 65536": ("y = MatMul (x, w)", (1, 65536), {"w": weights(65536, 2)}),
    "average, VALID": ("y = AveragePool <kernel_shape=[256, 2]> (x)", (1, 2, 260, 4), {}),
    "average, SAME": ("""y = AveragePool <kernel_shape=[8, 8], auto_pad="SAME_UPPER"> (x)""", IMAGE, {}),
    "maximum": ("y = MaxPool <kernel_shape=[3, 3], strides=[3, 2], pads=[1, 1, 1, 1]> (x)", IMAGE, {}),
    "mean of images": ("y = ReduceMean (x, a)", IMAGE, {"a": np.array([2, 3])}),
    "mean of rows": ("y = ReduceMean (x, a)", (1, 6, 16), {"a": np.array([-1])}),
    "softmax of channels": ("y = Softmax <axis=1> (x)", (1, 4, 255, 256), {}),
    "argmax of 127": ("y = ArgMax <axis=1, keepdims=0> (x)", (1, 127, 4, 4), {}),
    "nearest, eightfold": (
        NEAREST,
        IMAGE,
        {"n": np.array([1, 4, 64, 64])},
    ),
    "linear, twofold": ("""y = Resize <mode="linear"> (x, , , n)""", IMAGE, {"n": np.array([1, 4, 16, 16])}),
    "turned": ("y = Transpose <perm=[0, 2, 1, 3]> (x)", (1, 30, 300, 40), {}),
    "turned, three axes": ("y = Transpose <perm=[2, 0, 1]> (x)", (30, 300, 40), {}),
    "cut": (
        "y = Slice (x, s, e, a)",
        IMAGE,
        {"s": np.array([1, 2]), "e": np.array([3, 7]), "a": np.array([1, 3])},
    ),
    "padded": ("y = Pad (x, p)", IMAGE, {"p": np.array([0, 1, 1, 0, 0, 0, 2, 1])}),
}
# Beyond a limit: (ops, shape, constants, the kernel's ops, words of the reason), in float.
OUTSIDE = {
    "conv of stride 4": (
        "y = Conv <strides=[4, 1]> (x, w)",
        IMAGE,
        {"w": weights(6, 4, 3, 3)},
        "Conv.strides",
    ),
    "conv of 65 rows": ("y = Conv (x, w)", (1, 2, 70, 3), {"w": weights(3, 2, 65, 1)}, "w.shape[2]"),
    "conv of 65537 products": (
        "y = Conv (x, w)",
        (1, 65537, 1, 1),
        {"w": weights(1, 65537, 1, 1)},
        "w.elements",
    ),
    "conv of two images": ("y = Conv (x, w)", (2, 4, 8, 8), {"w": weights(6, 4, 3, 3)}, "x.shape[0]"),
    "transposed beyond its windows": (
        "y = ConvTranspose <strides=[2, 2], output_padding=[1, 1]> (x, w)",
        IMAGE,
        {"w": weights(4, 5, 3, 3)},
        "output_padding",
    ),
    "transposed by 1 and 2": (
        "y = ConvTranspose <strides=[1, 2]> (x, w)",
        IMAGE,
        {"w": weights(4, 5, 3, 3)},
        "ConvTranspose.strides",
    ),
    "product of 65537": ("y = MatMul (x, w)", (1, 65537), {"w": weights(65537, 2)}, "w.elements"),
    "average, VALID": ("y = AveragePool <kernel_shape=[257, 2]> (x)", (1, 2, 260, 4), {}, "kernel_shape"),
    "average, SAME": (
        """y = AveragePool <kernel_shape=[9, 9], auto_pad="SAME_UPPER"> (x)""",
        (1, 2, 12, 12),
        {},
        "kernel_shape",
    ),
    "average, padded otherwise": (
        "y = AveragePool <kernel_shape=[3, 3], pads=[2, 2, 2, 2]> (x)",
        IMAGE,
        {},
        "AveragePool.",
    ),
    "maximum, dilated": ("y = MaxPool <kernel_shape=[3, 3], dilations=[2, 2]> (x)", IMAGE, {}, "dilations"),
    "maximum of 257": ("y = MaxPool <kernel_shape=[257, 2]> (x)", (1, 2, 260, 4), {}, "kernel_shape"),
    "mean of two images": ("y = ReduceMean (x, a)", (2, 4, 8, 8), {"a": np.array([2, 3])}, "x.shape[0]"),
    "mean of channels": ("y = ReduceMean (x, a)", IMAGE, {"a": np.array([1])}, "ReduceMean.axes"),
    "mean of 4096": ("y = ReduceMean (x, a)", (1, 2, 4096), {"a": np.array([-1])}, "4096"),
    "softmax of 65536": ("y = Softmax <axis=1> (x)", (1, 2, 256, 256), {}, "Softmax.axis"),
    "argmax of 128": ("y = ArgMax <axis=1, keepdims=0> (x)", (1, 128, 4, 4), {}, "x.shape[1]"),
    "argmax of rows": ("y = ArgMax <axis=2, keepdims=0> (x)", IMAGE, {}, "ArgMax.axis"),
    "nearest, threefold": (
        NEAREST,
        IMAGE,
        {"n": np.array([1, 4, 24, 24])},
        "y.shape[2]",
    ),
    "nearest, of other pixels": (
        """y = Resize <mode="nearest", nearest_mode="floor"> (x, , , n)""",
        IMAGE,
        {"n": np.array([1, 4, 16, 16])},
        "Resize.nearest_mode",
    ),
    "linear, fourfold": (
        """y = Resize <mode="linear"> (x, , , n)""",
        IMAGE,
        {"n": np.array([1, 4, 32, 32])},
        "y.shape[2]",
    ),
    "turned, the batch too": (
        "y = Transpose <perm=[1, 0, 2, 3]> (x)",
        (4, 30, 300, 40),
        {},
        "Transpose.perm",
    ),
    "cut in steps": (
        "y = Slice (x, s, e, a, t)",
        IMAGE,
        {"s": np.array([0]), "e": np.array([8]), "a": np.array([3]), "t": np.array([2])},
        "Slice.steps",
    ),
    "padded by reflection": (
        """y = Pad <mode="reflect"> (x, p)""",
        IMAGE,
        {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
        "Pad.mode",
    ),
}


def compiled(folder: Path, files):
    """For each name: (operators on the CPU, on the NPU), or why it was not compiled."""
    for name, data in files.items():
        (folder / f"{name}.tflite").write_bytes(data)
    subprocess.run(
        [VELA.with_name("python"), SCRIPT, str(folder)], check=True, capture_output=True, cwd=folder
    )
    answers = json.loads((folder / "answers.json").read_text("utf-8"))
    return {name.removesuffix(".tflite"): answer for name, answer in answers.items()}


def test_every_row_runs_on_the_npu(tmp_path):
    kit = make_kit(planner.load_target("ethos-u55"), form="litert", seed=0)
    assert kit.skipped == ()
    for item in kit.items:
        if not item.file:
            assert REFUSED[item.name.split(".")[0]] in item.refusal
    files = {item.name: item.file for item in kit.items if item.file}
    found = compiled(tmp_path, files)
    assert {name: answer for name, answer in found.items() if not isinstance(answer, list) or answer[0]} == {}
    # An Identity is no operator of the file.
    assert {name for name, (_, npu) in found.items() if not npu} == {"Identity-1", "Identity-2"}
    rows = {item.row for item in kit.items}
    assert rows - {item.row for item in kit.items if item.file} == {
        item.row for item in kit.items if item.name == "LSTM-2"
    }


def planned(text, shape, constants):
    """The model planned with a stored interface, and its plan."""
    is_index = "ArgMax" in text
    graph = planner.load_model(of_indices(text, shape) if is_index else made(text, shape, constants))
    sample = {"i": np.random.default_rng(0).uniform(-1.5, 2, shape).astype(np.float32)}
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [sample], method="minmax"))
    if not is_index:
        value = graph.values["y"]
        asked = replace(value, facts=(*value.facts, AnyType(storage("i8"))))
        graph = replace(graph, values={**graph.values, "y": asked})
    return with_stored_interface(graph, planner.plan(graph, "ethos-u55"), "ethos-u55")


def of_indices(text, shape):
    """A model whose result is i64."""
    head = '<ir_version: 10, opset_import: ["" : 21]> g '
    sizes = ",".join(map(str, shape))
    model = onnx.parser.parse_model(f"{head} (float[{sizes}] i) => (int64 y) {{ x = Tanh (i) {text} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString()


def test_what_is_inside_of_the_limits_runs_on_the_npu(tmp_path):
    files = {}
    for name, (text, shape, constants) in INSIDE.items():
        graph, plan = planned(text, shape, constants)
        reasons = {kernel.name: kernel.reason for kernel in plan.kernels_in_order if kernel.row is None}
        assert reasons == {}, name
        files[name] = write_litert(graph, plan)
    found = compiled(tmp_path, files)
    assert {name: a for name, a in found.items() if not isinstance(a, list) or a[0] or not a[1]} == {}


def test_every_window_of_a_transposed_convolution_runs_on_the_npu(tmp_path):
    """A result of less than a stride a pixel is cut from one that Vela takes: PyTorch's 15 of 8, say."""
    files = {}
    for kernel, stride, begin, end, more in product((1, 2, 3, 4), (1, 2), (0, 1), (0, 1, 2), (0, 1)):
        if max(begin, end) < kernel and more <= min(end, stride - 1):
            attributes = f"strides=[{stride}, {stride}], pads=[{begin}, {begin}, {end}, {end}]"
            text = f"y = ConvTranspose <{attributes}, output_padding=[{more}, {more}]> (x, w)"
            graph, plan = planned(text, (1, 2, 3, 4), {"w": weights(2, 3, kernel, kernel)})
            assert all(kernel.row is not None for kernel in plan.kernels_in_order)
            files[f"{kernel} {stride} {begin} {end} {more}"] = write_litert(graph, plan)
    found = compiled(tmp_path, files)
    assert len(found) > 40
    assert {name: a for name, a in found.items() if not isinstance(a, list) or a[0] or not a[1]} == {}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_beyond_a_limit_is_float(name):
    *model, words = OUTSIDE[name]
    _, plan = planned(*model)
    reasons = [kernel.reason for kernel in plan.kernels_in_order if kernel.row is None]
    assert any(words in reason for reason in reasons), reasons


def listed(folder):
    """Vela's own list for TFLite files on the U55: the constraints of each operator, and the general ones."""
    subprocess.run(
        [VELA.with_name("python"), SCRIPT, str(folder), "--report"], check=True, capture_output=True
    )
    text = (folder / "SUPPORTED_OPS.md").read_text("utf-8")
    part = text[
        text.index("## Ethos-U55 and Ethos-U65 TFLite Generic") : text.index("## Ethos-U85 TFLite Generic")
    ]
    found, at = {}, ""
    for line in part.splitlines():
        head = re.fullmatch(r"##+ Ethos-U55 and Ethos-U65 TFLite (\w+) Constraints", line)
        if head:
            at = head[1]
        elif line.lstrip().startswith("- ") and at:
            found.setdefault(at, []).append(line.strip().removeprefix("- "))
    return found


def test_the_page_has_the_list_line_by_line(tmp_path):
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| ([A-Z0-9_]+|Generic) \| (.+?) \| (.+) \|$", text, re.MULTILINE)
    told = {(operator, constraint.strip("`")) for operator, constraint, _ in rows}
    found = listed(tmp_path)
    wanted = {
        ("Generic" if line in COMMON else operator, line)
        for operator, lines in found.items()
        for line in lines
    }
    assert len(wanted) > 60
    assert wanted - told == set()
    assert told - wanted == set()


COMMON = frozenset({"32-bit feature-maps are not supported."})
"""Lines that nearly every operator has."""
