"""What stands in a .tflite file, and what is refused, in words."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.litert.writer import flatbuffer
from planner.formats.litert.writer.geometry import SAME, VALID, windows_over
from planner.formats.litert.writer.versions import BY_ELEMENT, FOR_BOOL, RUNTIMES, Sight, version_of
from planner.formats.litert.writer.write import write_litert
from planner.formats.table import EXPORTERS, file_name
from planner.ir.types.qtypes import storage, uniform
from tests.formats.litert.writer.running import told
from tests.formats.plans import i8, model, op, plan_of, u8
from tests.formats.tosa.writer.test_interface import chain
from tests.interpreter.test_whole_models import digits
from tests.oracles import litert

SOFT = i8(1 / 256, -128)
TAN = i8(1 / 128)


def i16(scale, zero_point=0):
    return uniform(storage("i16"), scale, zero_point)


def test_the_format_has_its_suffix():
    assert EXPORTERS["litert"] is write_litert
    assert file_name("litert") == "litert.tflite"


def test_interfaces_are_float_unless_pinned(tmp_path):
    kinds = i8(0.1, 3), TAN, SOFT
    pinned = {"x": (kinds[0],), "y": (kinds[2],)}
    plain, whole = (chain(*kinds, facts=facts) for facts in ({}, pinned))
    files = [write_litert(*parts) for parts in (plain, whole)]
    assert [told(data).counts for data in files] == [
        {"QUANTIZE": 1, "TANH": 1, "LOGISTIC": 1, "DEQUANTIZE": 1},
        {"TANH": 1, "LOGISTIC": 1},
    ]
    assert (told(files[0]).inputs, told(files[0]).outputs) == (("x",), ("y",))
    stored = np.array([[-128, 0, 3], [4, 100, 127]], np.int8)
    reals = (stored.astype(np.float32) - 3) * np.float32(0.1)
    found = litert.run(tmp_path, [(files[0], [{"x": reals}]), (files[1], [{"x": stored}])])
    got, same = (answer[0]["y"] for answer in found)
    assert (got.dtype, same.dtype) == (np.float32, np.int8)
    np.testing.assert_array_equal(got, (same.astype(np.float32) + 128) / 256)


def test_a_file_is_the_same_again_with_its_buffers_shared_and_aligned():
    path, samples = digits()
    graph = planner.load_model(path)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(graph, "litert-int8")
    data = planner.export(graph, plan, "litert")
    assert planner.export(graph, plan, "litert") == data
    assert data[4:8] == b"TFL3"
    found = told(data)
    assert len(set(found.buffers)) == len(found.buffers)
    assert {offset % 16 for offset in found.offsets} == {0}
    assert all(version in RUNTIMES[name] for name, version in found.operators)


def test_bytes_and_words_have_versions_of_their_own():
    files = [
        write_litert(*chain(*kinds))
        for kinds in ((i8(0.1), TAN, SOFT), (i16(0.1), i16(1 / 32768), i16(1 / 32768)))
    ]
    assert dict(told(files[0]).operators) == {"QUANTIZE": 1, "TANH": 2, "LOGISTIC": 2, "DEQUANTIZE": 2}
    assert dict(told(files[1]).operators) == {"QUANTIZE": 2, "TANH": 3, "LOGISTIC": 3, "DEQUANTIZE": 3}
    assert [told(data).runtime for data in files] == ["1.14.0", "2.3.0"]


def test_every_version_that_can_be_written_has_its_runtime():
    for operator, known in RUNTIMES.items():
        elements = ["f32", "i8", "i16", *(["bool"] if operator in FOR_BOOL else [])]
        for element in elements if operator in BY_ELEMENT else ["f32"]:
            assert version_of(operator, Sight(element, 4, False, (), {})) in known, (operator, element)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "count", "padding"),
    [
        (9, 3, 1, (0, 0), 7, VALID),
        (9, 3, 1, (1, 1), 9, SAME),
        (9, 3, 2, (1, 1), 5, SAME),
        (8, 3, 2, (0, 1), 4, SAME),
        (8, 3, 2, (1, 1), 4, None),  # SAME has its one pixel of padding behind
        (8, 3, 2, (1, 0), 4, None),
        (8, 2, 2, (0, 0), 4, VALID),  # SAME says the same
        (7, 1, 2, (0, 0), 4, VALID),
        (7, 2, 2, (0, 1), 4, SAME),  # a ceiling
        (7, 2, 2, (0, 0), 3, VALID),
        (9, 3, 1, (2, 2), 11, None),
        (1, 1, 1, (0, 0), 1, VALID),
    ],
)
def test_windows_are_same_or_valid_or_neither(size, kernel, stride, pads, count, padding):  # noqa: PLR0917
    windows = windows_over((kernel,), (stride,), (1,), pads, (count,))
    assert windows.padding((1, size)) == padding
    top, left, bottom, right = windows.missing((1, size))
    assert (top, left, bottom) == (0, pads[0], 0)
    # With that around it, VALID has exactly these windows.
    assert (size + left + right - kernel) // stride + 1 >= count
    assert right == 0 or (size + left + right - kernel) // stride + 1 == count


@pytest.mark.parametrize(
    ("kinds", "arithmetic", "words"),
    [
        (
            (u8(0.1, 3), TAN, SOFT),
            "tosa_double",
            "h.in[0] ('x', row row@1) is !quant.uniform<u8:f32, 0.1000000",
        ),
        (
            (i8(0.1), i8(0.25), SOFT),
            "tosa_double",
            "the result of Tanh has scale 0.25 and zero point 0; TANH accepts 0.0078125 and 0 in 8 bits",
        ),
        (
            (i8(0.1), TAN, SOFT),
            "float32_even",
            "its row computes in float32_even; litert accepts rows of gemmlowp, litert, litert_16, ",
        ),
        (
            (i16(0.1, 5), i16(1 / 32768), i16(1 / 32768)),
            "tosa_double",
            "a zero point on more than 8 bits; litert accepts i8 with any zero point",
        ),
        (
            (uniform(storage("i4"), 0.1, 0), TAN, SOFT),
            "tosa_double",
            "4 bits; litert accepts i8 with any zero point",
        ),
    ],
)
def test_a_refusal_says_what_would_be_accepted(kinds, arithmetic, words):
    with pytest.raises(UnsupportedExport) as caught:
        write_litert(*chain(*kinds, arithmetic=arithmetic))
    assert words in str(caught.value)


def test_an_average_that_pads_otherwise_is_refused():
    graph = model(
        [op("AveragePool", "x", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])],
        inputs={"x": (1, 2, 8, 8)},
        outputs={"y": (1, 2, 4, 4)},
        constants={},
    )
    plan = plan_of(graph, [(("y",), "x", "y")], dict.fromkeys("xy", i8(0.1)), "tosa_double")
    with pytest.raises(
        UnsupportedExport,
        match=r"pads by \[1, 1, 1, 1\]; .* accepts no padding, or that of SAME: \[0, 0, 1, 1\] here",
    ):
        write_litert(graph, plan)


def test_without_its_packages_the_format_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tflite", None)
    with pytest.raises(UnsupportedExport, match="the packages flatbuffers and tflite") as caught:
        write_litert(*chain(i8(0.1), TAN, SOFT))
    assert caught.value.hint == "pip install 'flatbuffers>=24.3' 'tflite>=2.18'"


def test_a_file_of_too_many_bytes_is_refused(monkeypatch):
    monkeypatch.setattr(flatbuffer, "MOST_BYTES", 16)
    weights = np.ones((3, 4), np.float32)
    graph = model(
        [op("MatMul", "x w", "y")], inputs={"x": (2, 3)}, outputs={"y": (2, 4)}, constants={"w": weights}
    )
    plan = plan_of(graph, [(("y",), "x w", "y")], {}, "tosa_double")
    with pytest.raises(UnsupportedExport, match=r"bytes of constants; a .tflite file holds less than 8 here"):
        write_litert(graph, plan)
