"""Normalization: root mean squares, and sums in front of a normalization, as ops of their own.

Source: ONNX RMSNormalization (Zhang and Sennrich, 2019); onnxruntime's contrib operators.
"""

from planner.onnx.composites.body import Body, StaysWhole

_FLOAT: int = 1
"""`TensorProto.FLOAT`, the element type that statistics are taken in."""


def rms_normalization(body: Body) -> None:
    """RMSNormalization of ONNX over all axes from `axis` on; onnxruntime's SimplifiedLayerNormalization."""
    if any(body.op.outputs[1:]):
        raise StaysWhole("something reads its root mean square")
    axis = body.attribute("axis", -1)
    axes = (-1,) if axis == -1 else tuple(range(axis % body.rank(body.input(0)), body.rank(body.input(0))))
    normal = root_mean_square(body, body.input(0), body.attribute("epsilon", 1e-5), axes)
    scaled = body("Mul", normal, body.input(1), out="" if body.input(2) else body.op.outputs[0])
    if body.input(2):
        body("Add", scaled, body.input(2), out=body.op.outputs[0])


def root_mean_square(body: Body, x: str, epsilon: float, axes: tuple[int, ...] = (-1,)) -> str:
    """`x` over the root of its mean square along axes, in float32."""
    kind = body.dtype(x)
    if body.attribute("stash_type", _FLOAT) != _FLOAT:
        raise StaysWhole("its statistics are not float32")
    wide = x if kind == "f32" else body.cast(x, "f32")
    # As PyTorch writes it, so that both files of a model are planned alike.
    square = body("Pow", wide, body.real(2.0, wide))
    mean = body("ReduceMean", square, body.integers(*axes), keepdims=1)
    root = body("Sqrt", body("Add", mean, body.real(epsilon, wide)))
    normal = body("Mul", wide, body("Reciprocal", root))
    return normal if kind == "f32" else body.cast(normal, kind)


def skip_layer_normalization(body: Body) -> None:
    """SkipLayerNormalization: a sum of two, a bias, then LayerNormalization."""
    x, skip, gamma, beta, bias = (body.input(i) for i in range(5))
    total = _sum(body, x, skip, bias)
    if beta:
        body("LayerNormalization", total, gamma, beta, out=body.op.outputs[0], **_layer(body))
    else:
        body("LayerNormalization", total, gamma, out=body.op.outputs[0], **_layer(body))


def skip_rms_normalization(body: Body) -> None:
    """SkipSimplifiedLayerNormalization: a sum of two, a bias, then a root mean square normalization."""
    x, skip, gamma, bias = (body.input(i) for i in range(4))
    total = _sum(body, x, skip, bias)
    normal = root_mean_square(body, total, body.attribute("epsilon", 1e-12))
    body("Mul", normal, gamma, out=body.op.outputs[0])


def _layer(body: Body) -> dict[str, float | int]:
    return {"axis": -1, "epsilon": body.attribute("epsilon", 1e-12)}


def _sum(body: Body, x: str, skip: str, bias: str) -> str:
    if body.output(1) or body.output(2):
        raise StaysWhole("something reads its mean or deviation")
    total = body.output(3)
    if not bias:
        return body("Add", x, skip, out=total)
    return body("Add", body("Add", x, skip), bias, out=total)
