"""Products: Conv, ConvTranspose, Gemm and MatMul on stored integers taken apart: operands, bias, channels.

For whoever adds products up exactly: the interpreter, and every format that multiplies integers. Nothing here
computes or writes. Source: docs/specification.md, sections 3, 7 and 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.constants.quantize import dequantize_array, quantize_array
from planner.ir.graph import Graph, Op, Shape
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Operand
from planner.plans.records import PortTyped
from planner.plans.rescales import SAME_SCALE

Array: TypeAlias = npt.NDArray[Any]
Kinds: TypeAlias = Mapping[tuple[str, int], PortTyped]
Known: TypeAlias = Callable[[str], Array | None]

PRODUCTS: Final = frozenset({("Conv",), ("ConvTranspose",), ("Gemm",), ("MatMul",), ("MatMul", "Add")})
"""Types of the ops of a product; the last adds one number per column."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A linear op on stored integers.

    Attributes:
      w_axis: of the output channels in the weight.
      weight: its reals, as the model has them; None of an activation.
      bias: stored on the accumulator's grid; of a convolution it may come at run time.
      bias_at: name and operand index of the op that adds the bias.
      real_bias: reals of a constant bias that is float or has a grid of its own, exact arithmetic only.
    """

    op: Op
    x: Operand
    w: Operand
    w_axis: int
    weight: Array | None
    alpha: float = 1.0
    bias: Operand | None = None
    bias_at: tuple[str, int] = ("", 0)
    real_bias: tuple[float, ...] | None = None

    @property
    def is_conv(self) -> bool:
        """Whether channels come before spatial axes."""
        return self.op.type in ("Conv", "ConvTranspose")

    @property
    def trailing(self) -> int:
        """Axes behind the channels of the result, of a constant weight."""
        return self.weight.ndim - 2 if self.is_conv and self.weight is not None else 0

    @property
    def bits(self) -> int:
        """Bits of the wider operand."""
        return max(self.x.kind.storage.bits, self.w.kind.storage.bits)


def product_in(
    graph: Graph, ops: Sequence[Op], kinds: Kinds, known: Known, arithmetic: str
) -> Product | None:
    """The linear op of a block; None where its operands have no common integer accumulator.

    Args:
      kinds: types of operands, by (op name, operand index).
      known: the numbers of a value known before running.
      arithmetic: of the block's row.
    """
    op = ops[0]
    x, w = (kinds.get((op.name, i)) for i in (0, 1))
    if not (isinstance(x, Uniform) and isinstance(w, Uniform)) or tuple(o.type for o in ops) not in PRODUCTS:
        return None
    axis = 0 if op.type == "Conv" or op.attributes.get("transB") else 1
    if not x.is_per_tensor or w.grid or w.axis not in (None, axis) or not _is_plain(op, w):
        return None
    weight = known(op.inputs[1])
    shape = graph.values[op.inputs[1]].shape if weight is None else weight.shape
    if op.type == "MatMul" and not w.is_per_tensor and (shape is None or len(shape) != 2):
        return None
    alpha = float(op.attributes.get("alpha", 1.0)) if op.type == "Gemm" else 1.0
    found = Product(op, Operand(op.inputs[0], x), Operand(op.inputs[1], w), axis, weight, alpha)
    last, index = (op, 2) if len(ops) == 1 else (ops[1], 1 if ops[1].inputs[0] == op.outputs[0] else 0)
    name = last.inputs[index] if len(last.inputs) > index else ""
    if not name:
        return found
    kind, array, channels = kinds.get((last.name, index)), known(name), _channels(found, shape)
    if array is not None and not is_row(array, channels):
        return None
    if isinstance(kind, Uniform) and is_accumulator(kind, x, w, alpha):
        is_taken = array is not None or found.is_conv
        return replace(found, bias=Operand(name, kind), bias_at=(last.name, index)) if is_taken else None
    if arithmetic != "exact_even" or array is None:
        return None
    reals = array.astype(np.float32)
    if isinstance(kind, Uniform):
        reals = dequantize_array(quantize_array(reals, kind), kind)
    numbers = tuple(reals.astype(np.float64).reshape(-1).tolist())
    return replace(found, real_bias=numbers, bias_at=(last.name, index))


def _is_plain(op: Op, w: Uniform) -> bool:
    """Whether the op's attributes leave sums of products and a bias."""
    attributes = op.attributes
    if op.type == "ConvTranspose":
        is_explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in attributes
        return is_explicit and (w.is_per_tensor or attributes.get("group", 1) == 1)
    has_bias = len(op.inputs) > 2 and bool(op.inputs[2])
    return op.type != "Gemm" or not has_bias or attributes.get("beta", 1.0) == 1.0


def _channels(product: Product, shape: Shape | None) -> int | None:
    """Channels of the result, which a bias has a number for; None where there are none, or at run time."""
    if shape is None or len(shape) < 2:
        return None
    # Of stacks of matrices columns are last.
    size = shape[-1 if product.op.type == "MatMul" else product.w_axis]
    groups = int(product.op.attributes.get("group", 1)) if product.op.type == "ConvTranspose" else 1
    return size * groups if isinstance(size, int) else None


def is_row(array: Array | None, columns: int | None) -> bool:
    """Whether an array has one number for each column, along its last axis."""
    return array is not None and array.shape[-1:] == (columns,) == (array.size,)


def is_accumulator(kind: Uniform, x: Uniform, w: Uniform, alpha: float = 1.0) -> bool:
    """Whether a bias is on the grid of the products: the product of the scales, zero point 0."""
    if kind.storage.bits < 32 or any(kind.zero_points) or len(kind.scales) not in (1, len(w.scales)):
        return False
    wanted = alpha * x.scale * np.asarray(w.scales)
    return bool(np.allclose(np.asarray(kind.scales), wanted, rtol=SAME_SCALE, atol=0.0))
