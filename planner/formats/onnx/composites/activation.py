"""Activation: GELU and SiLU as onnxruntime and newer opsets spell them, in ops of opset 21.

Source: onnxruntime's contrib operators; ONNX Swish, Gelu.
"""

from planner.formats.onnx.composites.body import Body


def swish(body: Body) -> None:
    """`x * sigmoid(alpha * x)`: Swish of ONNX, QuickGelu of onnxruntime."""
    _gated(body, body.attribute("alpha", 1.0))


def quick_gelu(body: Body) -> None:
    """QuickGelu: alpha is 1.702 by default."""
    _gated(body, body.attribute("alpha", 1.702))


def gelu(body: Body) -> None:
    """Gelu by the error function."""
    body("Gelu", body.input(0), out=body.op.outputs[0])


def bias_gelu(body: Body) -> None:
    """BiasGelu: a sum, then Gelu."""
    body("Gelu", body("Add", body.input(0), body.input(1)), out=body.op.outputs[0])


def fast_gelu(body: Body) -> None:
    """FastGelu: a bias, where there is one, then Gelu by tanh."""
    x = body("Add", body.input(0), body.input(1)) if body.input(1) else body.input(0)
    body("Gelu", x, out=body.op.outputs[0], approximate="tanh")


def _gated(body: Body, alpha: float) -> None:
    x = body.input(0)
    inside = x if alpha == 1.0 else body("Mul", x, body.real(alpha, x))
    body("Mul", x, body("Sigmoid", inside), out=body.op.outputs[0])
