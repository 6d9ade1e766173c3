"""StableHLO in custom form whose ops are regular: read without jaxlib, SSA names kept; as jaxlib reads it."""

import numpy as np
import pytest

import planner
from planner.formats.stablehlo.reader.regular_form import regular
from tests.oracles import hlo

PROGRAM = """module @jit_f {
  func.func public @main(%image: tensor<2x3xf32>, %w: tensor<3x4xf32>) -> (tensor<2x6xf32> {jax.result_info = "x"}) {
    %c = stablehlo.constant dense<0.000000e+00> : tensor<f32> // stablehlo.add %q
    %hidden = stablehlo.dot_general %image, %w, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %z = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %r = stablehlo.maximum %hidden, %z : tensor<2x4xf32> loc("relu")
    %p = stablehlo.compare  GT, %r, %z,  FLOAT : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %s = stablehlo.select %p, %r, %hidden : tensor<2x4xi1>, tensor<2x4xf32>
    %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
    %u = stablehlo.slice %t [0:4:2, 0:2] : (tensor<4x2xf32>) -> tensor<2x2xf32>
    %v = stablehlo.concatenate %u, %u, dim = 1 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x4xf32>
    %o = stablehlo.pad %v, %c, low = [0, 1], high = [0, 1], interior = [0, 0] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x6xf32>
    %i = stablehlo.iota dim = 1 : tensor<2x6xf32>
    %a = stablehlo.clamp %o, %i, %o : tensor<2x6xf32>
    %b = stablehlo.reverse %a, dims = [1] : tensor<2x6xf32>
    %y = stablehlo.tanh %b : tensor<2x6xf32>
    return %y : tensor<2x6xf32>
  }
}
"""  # noqa: E501 - as JAX prints it


def test_it_is_what_jaxlib_makes_of_it():
    """Ops and attributes are those of jaxlib's own generic form; no jaxlib is here."""
    own = planner.load_model(PROGRAM.encode(), format="mlir")
    other = planner.load_model(hlo.printed([PROGRAM], generic=True)[0].encode(), format="mlir")
    assert [op.type for op in own.ops] == [op.type for op in other.ops]
    assert [op.attributes for op in own.ops] == [op.attributes for op in other.ops]
    assert {"image", "w", "hidden", "relu", "y"} <= own.values.keys()
    x, w = np.ones((2, 3), np.float32), np.full((3, 4), 0.1, np.float32)
    ready = planner.annotate(own, stats=planner.calibrate(own, [{"image": x, "w": w}]))
    assert any(kernel.row for kernel in planner.plan(ready, "litert-int8").kernels_in_order)


@pytest.mark.parametrize(
    "op",
    [
        "%y = stablehlo.cholesky %x, lower = true : tensor<2x2xf32>",
        "%y = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (t) -> u",
        "%y = stablehlo.custom_call @f(%x) : (tensor<2x2xf32>) -> tensor<2x2xf32>",
        "%y = stablehlo.compare %x : tensor<2x2xf32>",
        "%y:2 = stablehlo.rng_bit_generator %x, algorithm =  DEFAULT : (a) -> (b, c)",
    ],
)
def test_any_other_form_is_left_to_jaxlib(op):
    assert regular(op) is None
