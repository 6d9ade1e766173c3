"""Normalization: root mean squares, groups, and sums in front of a normalization, as ops of their own.

Source: ONNX RMSNormalization (Zhang and Sennrich, 2019), GroupNormalization; onnxruntime's contrib operators.
"""

import numpy as np

from planner.formats.onnx.composites.body import Body, StaysWhole

_FLOAT: int = 1
"""`TensorProto.FLOAT`, the element type that statistics are taken in."""
_BY_CHANNEL: int = 21
"""The opset from which GroupNormalization has a gain for each channel."""


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


def group_normalization(body: Body) -> None:
    """GroupNormalization of ONNX 21: an InstanceNormalization of groups, then gain and offset by channel.

    Groups side by side are what an InstanceNormalization calls channels; some devices have a kernel for it.
    """
    if body.graph.opsets.get("", _BY_CHANNEL) < _BY_CHANNEL:
        raise StaysWhole("its gains are those of groups")
    if body.attribute("stash_type", _FLOAT) != _FLOAT:
        raise StaysWhole("its statistics are not float32")
    x, gain, offset = (body.input(i) for i in range(3))
    groups, kind = body.attribute("num_groups", 0), body.dtype(x)
    wide = x if kind == "f32" else body.cast(x, "f32")
    split = body("Reshape", wide, body.integers(0, groups, -1))
    one, zero = (body.constant("group", np.full(groups, number, np.float32)) for number in (1, 0))
    normal = body("InstanceNormalization", split, one, zero, epsilon=body.attribute("epsilon", 1e-5))
    whole = body("Reshape", normal, body("Shape", x))
    if kind != "f32":
        whole = body.cast(whole, kind)
    channels = body.integers(-1, *[1] * (body.rank(x) - 2))
    scaled = body("Mul", whole, body("Reshape", gain, channels))
    body("Add", scaled, body("Reshape", offset, channels), out=body.op.outputs[0])


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
