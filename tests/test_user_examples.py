"""The examples that need nothing but the planner run as they stand; the others' parts that can."""

import runpy

import numpy as np
import pytest

from tests.api.conftest import make_service  # noqa: F401 - a fixture
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "digits"


def main_of(name):
    return runpy.run_path(str(EXAMPLES / name))


def test_the_service_from_python(
    make_service,  # noqa: F811
    tmp_path,
    capsys,
):
    url = str(make_service().base_url).rstrip("/")
    files = [str(DIGITS / "digits.onnx"), str(DIGITS / "calibration.npz"), str(tmp_path / "out.tflite")]
    main_of("service.py")["main"](*files, "litert-int8", url)
    said = capsys.readouterr().out
    assert "15 of 15 kernels quantized for litert-int8" in said
    assert "bytes of litert; the report: " in said
    assert (tmp_path / "out.tflite").read_bytes()[4:8] == b"TFL3"


def test_a_network_of_pytorch_is_quantized_and_evaluated(tmp_path, capsys):
    """The half that needs no PyTorch, on the shipped model in place of the exported one."""
    main_of("from_pytorch.py")["quantize"](
        str(DIGITS / "digits.onnx"), "litert-int8", str(tmp_path / "x.onnx")
    )
    said = capsys.readouterr().out
    assert "15 of 15 kernels quantized" in said
    assert "verdict: good" in said
    assert (tmp_path / "x.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((0, 0, 1, 1), (0, 0, 1, 1), 1.0),
        ((0, 0, 1, 1), (1, 1, 2, 2), 0.0),
        ((0, 0, 2, 1), (1, 0, 3, 1), 1 / 3),
    ],
)
def test_boxes_of_the_detector_overlap(one, other, shared):
    names = main_of("detector.py")
    assert names["overlap"](np.array(one), np.array(other)) == pytest.approx(shared)
    assert len(names["anchors"]()) == 4420  # as many as the network has outputs
