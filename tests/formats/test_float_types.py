"""Models in another float than float32: each format writes them, or says that float32 is what it takes."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.write import Node, write_model

ADVICE = "export the model in float32 from its library"


def half(dtype: str) -> bytes:
    numbers = np.linspace(-1, 1, 32).reshape(4, 8).astype({"f16": np.float16, "f64": np.float64}[dtype])
    return write_model(
        name="half",
        nodes=[Node("Gemm", ("x", "w"), ("h",), "gemm"), Node("Erf", ("h",), ("y",), "erf")],
        inputs=[("x", dtype, (2, 4))],
        outputs=[("y", dtype, (2, 8))],
        constants={"w": numbers},
        opset=21,
    )


@pytest.mark.parametrize("dtype", ["f16", "f64"])
@pytest.mark.parametrize("form", ["litert", "onnx-qdq", "stablehlo", "tosa"])
def test_a_model_in_another_float(form, dtype):
    model = planner.load_model(half(dtype))
    plan = planner.plan(model, "onnxruntime-cpu" if form != "litert" else "litert-int8")
    if form in ("onnx-qdq", "stablehlo"):
        assert planner.export(model, plan, form)
        return
    with pytest.raises(UnsupportedExport, match=f"is {dtype}") as caught:
        planner.export(model, plan, form)
    assert ADVICE in str(caught.value)
