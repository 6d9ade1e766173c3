"""What commands say of the files that they write: sizes, and files that do not run."""

import numpy as np

from planner.cli.comparing import bigger
from tests.interpreter.test_at_defaults import whole_numbers


def test_a_file_bigger_than_its_source_says_so(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"12345")
    files = {"onnx-qdq.onnx": 6, "onnx-integer.onnx": 4, "plan.json": 7}
    told = f"onnx-qdq.onnx is bigger than {path}: 6 bytes, not 5"
    assert list(bigger(str(path), files)) == [told]
    assert list(bigger("-", files)) == []


def test_the_command_keeps_everything_of_a_file_that_does_not_run_at_defaults(qplan, tmp_path):
    data, arrays = whole_numbers()
    (tmp_path / "net.onnx").write_bytes(data)
    np.savez(tmp_path / "x.npz", **arrays)
    out = tmp_path / "out"
    found = qplan("quantize", tmp_path / "net.onnx", "--data", tmp_path / "x.npz", "--out", out)
    assert found.code == 1
    told = "the exported file does not run at onnxruntime's defaults: Resize 'up' fails with optimisations of"
    assert f"verdict: poor: {told}" in found.out
    assert found.out.endswith("missed: onnx-qdq: does not run at the engine's defaults\n")
    written = {"annotations.json", "plan.json", "plan.mlir", "report.html", "onnx-qdq.onnx", "effort.json"}
    assert {path.name for path in out.iterdir()} == written
    is_told = "fails with optimisations of level" in (out / "report.html").read_text(encoding="utf-8")
    assert is_told
