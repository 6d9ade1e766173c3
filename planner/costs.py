"""Costs: multiply-accumulates, bit operations and weight bits of a model, layer by layer.

Widths are those its own quantizers say, whatever the dialect. Three ways to count bit operations are in use:
`qonnx`, `table3` (a scaled activation counts as 32 bits) and `eq5` (with the accumulator). Nothing runs.
Table III lists the MACs and weights of the widths that most of them have: a first layer of wider operands is
in its bits alone (`main_macs`, `main_weights`). Source: QONNX paper, equation 5 and table III;
docs/formats.md.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from planner.errors import require_name
from planner.formats.onnx.dtypes import NARROW_BITS, NUMPY
from planner.formats.onnx.quantized.dialect import MULTI_THRESHOLD
from planner.formats.onnx.quantized.expand import expand
from planner.formats.onnx.quantized.quantizers import Quantizer, find_quantizers
from planner.formats.onnx.read import read_written
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Graph, Op
from planner.ops import defined, of_form
from planner.ops.forms import Form
from planner.ops.macs import Count

MODES: Final = ("qonnx", "table3", "eq5")
_FLOAT_BITS: Final = 32
_MIXING: Final = of_form(Form.CONCAT, Form.SELECT, Form.UNARY, Form.VARIADIC)
"""Data movement whose results have the bits of several operands, or fewer than one has."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Cost of one op.

    Attributes:
      macs: multiply-accumulates.
      bops: bit operations of those, by the requested mode.
      weights, weight_bits: numbers in its constant operands, and the bits to store them.
      other: elementwise results, comparisons and additions, which no mode counts.
      bits_a, bits_w: widths of its operands.
    """

    name: str
    type: str
    macs: int = 0
    bops: float = 0.0
    weights: int = 0
    weight_bits: int = 0
    other: int = 0
    bits_a: int = _FLOAT_BITS
    bits_w: int = _FLOAT_BITS


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a model, layer by layer (`layers`); the totals are sums over them."""

    mode: str
    layers: tuple[Layer, ...]

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return sum(layer.macs for layer in self.layers)

    @property
    def bops(self) -> float:
        """Bit operations."""
        return sum(layer.bops for layer in self.layers)

    @property
    def weights(self) -> int:
        """Numbers in weights."""
        return sum(layer.weights for layer in self.layers)

    @property
    def weight_bits(self) -> int:
        """Bits of all weights."""
        return sum(layer.weight_bits for layer in self.layers)

    @property
    def main_macs(self) -> int:
        """Multiply-accumulates of the pair of widths that has the most."""
        counts = Counter[tuple[int, int]]()
        for layer in self.layers:
            counts[layer.bits_a, layer.bits_w] += layer.macs
        return max(counts.values(), default=0)

    @property
    def main_weights(self) -> int:
        """Weights of the width that most have."""
        counts = Counter[int]()
        for layer in self.layers:
            counts[layer.bits_w] += layer.weights
        return max(counts.values(), default=0)


def cost(source: str | Path | bytes, mode: str = "qonnx", *, dims: Mapping[str, int] | None = None) -> Cost:
    """Count the cost of an ONNX file of any quantized dialect.

    Args:
      mode: how bit operations are counted: `qonnx`, `table3` or `eq5` (docs/qonnx.md).
      dims: sizes of dimensions that the model leaves open, which else count as 1.
    """
    return cost_of(read_written(source, dims=dims), mode)


def cost_of(graph: Graph, mode: str = "qonnx") -> Cost:
    """Count the cost of a model.

    Args:
      graph: as `onnx.read.read_written` gives it; unknown dimensions count as 1.
      mode: one of `MODES`.

    Raises:
      UnknownName: no such mode.
    """
    require_name("cost mode", mode, MODES)
    plain = infer(expand(graph))
    widths = _Widths(plain, mode)
    layers = []
    for op in plain.ops:
        operator = defined(op.type)
        if operator.macs is not None:
            layers.append(_linear(op, operator.macs(op, plain), plain, widths, mode))
        elif operator.moves is None and op.type not in _FREE and "::" not in op.type:
            other = sum(plain.values[out].elements for out in op.outputs if out)
            layers.append(Layer(op.name, op.type, other=other))
    return Cost(mode, tuple(layers))


class _Widths:
    """Bits of each value, seen through ops that only move data."""

    def __init__(self, graph: Graph, mode: str) -> None:
        self._graph, self._mode = graph, mode
        self._found = {item.result: item.quantizer for item in find_quantizers(graph)}
        self._writer = {out: op for op in graph.ops for out in op.outputs if out}

    def bits(self, name: str) -> int:
        """The width of a value; 32 where nothing quantizes it."""
        name = self._origin(name)
        quantizer, op = self._found.get(name), self._writer.get(name)
        if quantizer is not None:
            # A weight's scale moves behind its op, an activation's stays with it.
            is_scaled = not np.all(quantizer.scale == 1) and not self.is_weight(name)
            return _FLOAT_BITS if self._mode == "table3" and is_scaled else storage_bits(quantizer)
        if op is not None and op.type == MULTI_THRESHOLD:
            return _named_bits(op.attributes["out_dtype"])
        stored = op.inputs[0] if op is not None and op.type == "DequantizeLinear" else name
        dtype = self._graph.values[stored].dtype if stored in self._graph.values else ""
        return NARROW_BITS.get(dtype) or (NUMPY[dtype].itemsize * 8 if dtype in NUMPY else _FLOAT_BITS)

    def _origin(self, name: str) -> str:
        """The origin of a value's numbers, through ops that only move them."""
        while name not in self._found:
            op = self._writer.get(name)
            if op is None or op.type in _MIXING or defined(op.type).moves is None:
                break
            name = op.inputs[0]
        return name

    def is_weight(self, name: str) -> bool:
        """Whether a value follows from constants alone."""
        while name not in self._graph.constants:
            op = self._writer.get(name)
            if op is None or not op.inputs:
                return False
            name = op.inputs[0]
        return True


def _named_bits(name: str) -> int:
    """The width of one of FINN's data types: `BIPOLAR`, `BINARY`, `INT4`, `UINT2`, ..."""
    digits = "".join(letter for letter in name if letter.isdigit())
    return int(digits) if digits else 1 if name in ("BINARY", "BIPOLAR") else _FLOAT_BITS


def storage_bits(quantizer: Quantizer) -> int:
    """Whole bits that a quantizer's integers need; of a width per channel the widest."""
    if quantizer.is_bipolar:
        return 1
    given = math.ceil(float(np.max(quantizer.bits)))
    if given:
        return given
    low, high = int(quantizer.low.min()), int(quantizer.high.max())
    return max((-low - 1).bit_length() if low < 0 else 0, high.bit_length()) + (low < 0)


def _linear(op: Op, count: Count, graph: Graph, widths: _Widths, mode: str) -> Layer:
    bits_a, bits_w = widths.bits(count.a), widths.bits(count.w)
    per_mac = float(bits_a * bits_w)
    if mode == "eq5":
        # Equation 5 adds the accumulator: a product is bits_a + bits_w wide, and n sums carry log2(n) bits.
        per_mac += bits_a + bits_w + math.log2(max(count.depth, 1))
    held = [name for name in (count.a, count.w) if widths.is_weight(name)]
    weights = sum(graph.values[name].elements for name in held)
    weight_bits = sum(graph.values[name].elements * widths.bits(name) for name in held)
    return Layer(op.name, op.type, count.macs, count.macs * per_mac, weights, weight_bits, 0, bits_a, bits_w)


_FREE: Final = of_form(Form.CONSTANT, Form.QUANTIZER, Form.SHAPE) | {"Cast"}


def rows(cost: Cost, *, main: bool = False) -> Sequence[tuple[str, str, str, str, str, str]]:
    """The table of `qplan cost`: layers that multiply, then the total, `main` or of all MACs."""
    table = [
        (layer.name, layer.type, f"{layer.macs:,}", f"{layer.bops:,.0f}", f"{layer.weight_bits:,}",
         f"{layer.bits_a} x {layer.bits_w}")
        for layer in cost.layers
        if layer.macs
    ]  # fmt: skip
    macs = cost.main_macs if main else cost.macs
    total = ("total", "", f"{macs:,}", f"{cost.bops:,.0f}", f"{cost.weight_bits:,}", "")
    return [*table, total]
