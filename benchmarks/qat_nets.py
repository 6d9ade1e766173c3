"""Nets in the form in which Brevitas exports trained quantization (QONNX), 1 to 8 bits, and their inputs.

Quantizers, scales and biases are as such exports have them; weights are random, as what is judged is whether
a plan computes what the file says, and not what it has learnt. Not part of the product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]

DOMAIN: Final = "qonnx.custom_op.general"
INPUT_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class Net:
    """One net.

    Attributes:
      weights, activations: bits; weights of 1 bit are +-scale.
      convolutions: of 3 x 3, then one linear layer; else linear layers alone.
      bias: `float`; `sum`, on the grid of the products as Int32Bias has it; `own`, 8 bits on its own grid.
      last: bits of the quantizer behind the last layer, 0 for none.
      per_channel: a scale for each output channel of a convolution.
      power_of_two: all scales are powers of two.
      shifted: weights are unsigned, with a zero point.
      residual: the second layer's result is quantized as its input is, and added to that.
    """

    name: str
    weights: int
    activations: int
    convolutions: bool = False
    bias: str = "float"
    last: int = 8
    per_channel: bool = False
    power_of_two: bool = False
    shifted: bool = False
    residual: bool = False


NETS: Final = (
    Net("w1a2-linear", 1, 2),
    Net("w2a2-linear", 2, 2),
    Net("w2a4-conv", 2, 4, convolutions=True),
    Net("w3a3-linear", 3, 3, bias="own"),
    Net("w3a5-linear", 3, 5),
    Net("w3a5-linear-open", 3, 5, last=0),
    Net("w4a4-linear-pow2", 4, 4, power_of_two=True),
    Net("w4a4-linear-shifted", 4, 4, shifted=True),
    Net("w4a4-linear-residual", 4, 4, residual=True),
    Net("w4a4-conv-channels", 4, 4, convolutions=True, per_channel=True),
    Net("w4a8-conv", 4, 8, convolutions=True),
    Net("w5a5-linear", 5, 5, bias="own"),
    Net("w6a6-conv-pow2", 6, 6, convolutions=True, power_of_two=True),
    Net("w8a8-conv-sum", 8, 8, convolutions=True, per_channel=True, bias="sum"),
    Net("w8a8-linear", 8, 8),
    Net("w8a8-conv-shifted", 8, 8, convolutions=True, shifted=True, bias="sum"),
)


class _File:
    """Nodes and constants of a model under construction, and its values at the samples."""

    def __init__(self, net: Net, rng: np.random.Generator) -> None:
        self.net, self.rng = net, rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def quantizer(
        self, name: str, x: str, scale: Array, bits: int, *, signed: bool, narrow: bool, zero: int = 0
    ) -> str:
        ports = [x, self.constant(f"{name}.scale", scale)]
        if bits == 1:
            self.nodes.append(helper.make_node("BipolarQuant", ports, [name], name, domain=DOMAIN))
            return name
        ports += [
            self.constant(f"{name}.zero", np.asarray(zero)),
            self.constant(f"{name}.bits", np.asarray(bits)),
        ]
        flags: dict[str, Any] = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": "ROUND"}
        self.nodes.append(helper.make_node("Quant", ports, [name], name, domain=DOMAIN, **flags))
        return name

    def scale(self, most: Array | float, bits: int, *, signed: bool) -> Array:
        steps = max(1, (1 << bits - int(signed)) - 1)
        found = np.asarray(most, np.float32) / np.float32(steps)
        return np.exp2(np.ceil(np.log2(found))) if self.net.power_of_two else found


def _quantized(x: Array, scale: Array, bits: int, *, signed: bool, zero: int = 0) -> Array:
    if bits == 1:
        return np.where(x >= 0, scale, -scale).astype(np.float32)
    most = (1 << bits - int(signed)) - 1
    least = -most - 1 if signed else 0
    return np.asarray((np.clip(np.rint(x / scale) + zero, least, most) - zero) * scale, np.float32)


def _layer(file: _File, i: int, x: str, shape: tuple[int, ...], x_scale: Array) -> tuple[str, Array, Array]:
    """Append a layer with its quantizers: its result, weight and bias."""
    net, rng = file.net, file.rng
    w = rng.normal(size=shape).astype(np.float32) / np.sqrt(np.prod(shape[1:])).astype(np.float32)
    axes = tuple(range(1, len(shape))) if net.per_channel and len(shape) == 4 else None
    most = np.abs(w).max(axis=axes, keepdims=True) if axes else np.abs(w).max()
    scale = np.abs(w).mean() if net.weights == 1 else file.scale(most, net.weights, signed=True)
    scale = np.asarray(scale, np.float32)
    if net.weights == 1 and net.power_of_two:
        scale = np.exp2(np.ceil(np.log2(scale)))
    zero = 0
    if net.shifted:
        w = np.where(w < 0, w / 2, w)
        scale = np.asarray((w.max() - w.min()) / ((1 << net.weights) - 1), np.float32)
        zero = int(np.rint(-w.min() / scale))
    weight = file.quantizer(
        f"w{i}",
        file.constant(f"w{i}.float", w),
        scale,
        net.weights,
        signed=not net.shifted,
        narrow=not net.shifted,
        zero=zero,
    )
    b = (rng.normal(size=shape[0]) * 0.2).astype(np.float32)
    bias = file.constant(f"b{i}.float" if net.bias != "float" else f"b{i}", b)
    if net.bias == "own":
        own = file.scale(np.abs(b).max(), 8, signed=True)
        bias, b = (
            file.quantizer(f"b{i}", bias, own, 8, signed=True, narrow=False),
            _quantized(b, own, 8, signed=True),
        )
    elif net.bias == "sum":
        own = (scale.reshape(-1) * x_scale).astype(np.float32)
        bias = file.quantizer(f"b{i}", bias, own, 32, signed=True, narrow=False)
        b = np.asarray(np.rint(b / own) * own, np.float32)
    flags: dict[str, Any] = {"pads": [1] * 4} if len(shape) == 4 else {"transB": 1}
    kind = "Conv" if len(shape) == 4 else "Gemm"
    file.nodes.append(helper.make_node(kind, [x, weight, bias], [f"y{i}"], f"layer{i}", **flags))
    return f"y{i}", _quantized(w, scale, net.weights, signed=not net.shifted, zero=zero), b


def _forward(x: Array, w: Array, b: Array) -> Array:
    if w.ndim == 2:
        return np.asarray(x @ w.T + b, np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None], np.float32)


def build(net: Net) -> bytes:
    """The file of a net: a quantized input, three layers with Relu and a quantizer between, an output."""
    file = _File(net, np.random.default_rng([7, *net.name.encode()]))
    x = np.concatenate([sample["x"] for sample in inputs(net, 16)])
    scale = file.scale(np.abs(x).max(), INPUT_BITS, signed=True)
    name = file.quantizer("q0", "x", scale, INPUT_BITS, signed=True, narrow=False)
    x = _quantized(x, scale, INPUT_BITS, signed=True)
    shapes = (
        [(16, 3, 3, 3), (16, 16, 3, 3), (10, 16 * 64)] if net.convolutions else [(64, 48), (64, 64), (10, 64)]
    )
    skip = name, x
    for i, shape in enumerate(shapes):
        if net.convolutions and len(shape) == 2:
            file.nodes.append(helper.make_node("Flatten", [name], ["flat"], "flatten"))
            name, x = "flat", x.reshape(len(x), -1)
        name, w, b = _layer(file, i, name, shape, scale)
        x = _forward(x, w, b)
        if i == len(shapes) - 1:
            break
        file.nodes.append(helper.make_node("Relu", [name], [f"r{i}"], f"relu{i}"))
        x = np.maximum(x, 0)
        if not (net.residual and i):
            scale = file.scale(3 * x.std(), net.activations, signed=False)
        name = file.quantizer(f"q{i + 1}", f"r{i}", scale, net.activations, signed=False, narrow=False)
        x = _quantized(x, scale, net.activations, signed=False)
        if net.residual and i:
            file.nodes.append(helper.make_node("Add", [skip[0], name], ["sum"], "add"))
            x, scale = x + skip[1], file.scale(2 * x.max(), net.activations, signed=False)
            name = file.quantizer("qsum", "sum", scale, net.activations, signed=False, narrow=False)
            x = _quantized(x, scale, net.activations, signed=False)
        skip = name, x
    if net.last:
        scale = file.scale(np.abs(x).max(), net.last, signed=True)
        name = file.quantizer("last", name, scale, net.last, signed=True, narrow=False)
    dims = [1, 3, 8, 8] if net.convolutions else [1, 48]
    graph = helper.make_graph(
        file.nodes,
        net.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 10])],
        file.constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def inputs(net: Net, count: int, seed: int = 0) -> Iterator[dict[str, Array]]:
    """Samples of a net."""
    rng = np.random.default_rng([11, seed])
    shape = (1, 3, 8, 8) if net.convolutions else (1, 48)
    for _ in range(count):
        yield {"x": rng.normal(size=shape).astype(np.float32)}
