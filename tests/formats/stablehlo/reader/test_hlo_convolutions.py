"""Convolutions of StableHLO with dilated inputs and any pads beside sums that are written out."""

import numpy as np
import pytest

import planner
from planner.conversion.pins import with_rounding
from planner.interpreter.models import ModelRunner


def summed(x, w, step, pads):
    """The convolution of one axis by its definition: zeros between, pads around or off, products summed."""
    batch, channels, size = x.shape
    wide = np.zeros((batch, channels, (size - 1) * step + 1))
    wide[:, :, ::step] = x
    low, high = pads
    wide = np.pad(wide, ((0, 0), (0, 0), (max(low, 0), max(high, 0))))
    wide = wide[:, :, max(-low, 0) : wide.shape[2] - max(-high, 0)]
    count = wide.shape[2] - w.shape[2] + 1
    return np.stack(
        [np.einsum("bck,ock->bo", wide[:, :, i : i + w.shape[2]], w) for i in range(count)], axis=2
    )


@pytest.mark.parametrize(
    ("step", "pads", "ops"),
    [
        (2, (2, 2), ["ConvTranspose"]),
        (2, (1, 2), ["ConvTranspose"]),
        (2, (3, 2), None),  # wider than the kernel reaches
        (3, (0, 7), None),
        (2, (-1, 5), None),
        (1, (-3, 6), None),  # takes away all of the data, and of what is around it
        (2, (9, -8), None),
    ],
)
def test_pads_of_any_width(step, pads, ops):
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 6, (2, 2, 3)).astype(np.float32)
    w = rng.integers(-5, 6, (4, 2, 3)).astype(np.float32)
    wanted = summed(x, w, step, pads)
    kinds = ["x".join(map(str, array.shape)) for array in (x, w, wanted)]
    dense = f"dense<{w.tolist()}> : tensor<{kinds[1]}xf32>"
    text = f"""func.func @main(%x: tensor<{kinds[0]}xf32>) -> tensor<{kinds[2]}xf32> {{
  %w = "stablehlo.constant"() {{value = {dense}}} : () -> tensor<{kinds[1]}xf32>
  %r = "stablehlo.convolution"(%x, %w) {{
    batch_group_count = 1 : i64, feature_group_count = 1 : i64,
    dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>,
    lhs_dilation = array<i64: {step}>, padding = dense<[{list(pads)}]> : tensor<1x2xi64>
  }} : (tensor<{kinds[0]}xf32>, tensor<{kinds[1]}xf32>) -> tensor<{kinds[2]}xf32>
  return %r : tensor<{kinds[2]}xf32>
}}
"""
    model = planner.load_model(text.encode(), format="mlir")
    assert model.notes == ()
    assert ops is None or [op.type for op in model.ops] == ops
    (found,) = ModelRunner(with_rounding(model)).run({model.inputs[0]: x}).values()
    np.testing.assert_array_equal(found, wanted)
    plan = planner.plan(model, "stablehlo")
    assert not any("::" in kernel.kernel for kernel in plan.kernels_in_order)
