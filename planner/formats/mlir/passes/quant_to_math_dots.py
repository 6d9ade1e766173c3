"""Dot products and convolutions of stored integers, accumulated as integers, requantized once.

Zero points go before: `sum (q - z) * (p - y)`, so the padding of a convolution is exact zeros. The sum is
i32, or i64 where factors and their number could leave i32. Then `uniform_quantize` of `sum * (scale of one
* scale of the other)`, unless that product is the result's scale already. Weights may be quantized along an
axis that the result has too. Reals times quantized weights dequantize the weights. Source: StableHLO
specification, `dot_general`, `convolution`; docs/specification.md, 9.4.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.builder import Builder
from xdsl.dialects import builtin
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.formats.mlir.passes.qdq_to_quantized import is_per_tensor
from planner.formats.mlir.stablehlo_ops import (
    I32,
    I64,
    Known,
    Sharing,
    bitcast,
    convert,
    foreign,
    items_of,
    like,
    make,
    name_of,
    parameters,
    put,
    shape_of,
    stored_type,
)
from planner.formats.mlir.types import uniform_of, with_element
from planner.formats.mlir.verbatim_types import WrittenUniform

_FIELD: Final = r"{}\s*=\s*\[([0-9, ]*)\]"
_CONVOLUTION: Final = re.compile(r"\[(.*?)\]\s*x\s*\[(.*?)\]\s*->\s*\[(.*?)\]")
_INT32: Final = 1 << 31
_NARROW: Final = 8


@dataclass(frozen=True, slots=True)
class Product:
    """Dimensions of the weights that are summed over, and places of the others in the result.

    Attributes:
      summed: dimensions of the right operand.
      places: dimension of the right operand -> dimension of the result.
    """

    summed: tuple[int, ...]
    places: dict[int, int]


def lower_product(op: Operation, known: Known) -> bool:
    """Lower a dot or convolution of quantized operands; False where integers cannot do it."""
    left, right, result = (uniform_of(value.type) for value in (*op.operands, op.results[0]))
    if left is None or right is None or result is None or not is_per_tensor(left):
        return False
    product = product_of(op)
    if product is None or right.blocks is not None:
        return False
    # Scales along a summed dimension cannot be taken out of the sum.
    if right.axis is not None and right.axis not in product.places:
        return False
    build = Sharing(op, known)
    total = _accumulate(build, op, left, right, product)
    made = _requantize(build, op, total, (left, right, result), product)
    Rewriter.replace_op(op, [], [made])
    return True


def product_of(op: Operation) -> Product | None:
    """Read the dimension numbers of a dot or convolution; None where they are not understood."""
    rank = len(shape_of(op.operands[1].type))
    items = items_of(op)
    if name_of(op) == "stablehlo.dot":
        free = range(1, rank)
        start = max(len(shape_of(op.operands[0].type)) - 1, 0)
        return Product((0,), {axis: start + i for i, axis in enumerate(free)})
    if name_of(op) == "stablehlo.dot_general":
        return _general(str(items.get("dot_dimension_numbers")), op)
    match = _CONVOLUTION.search(str(items.get("dimension_numbers")))
    if match is None:
        return None
    kernel, out = ([item.strip() for item in text.split(",")] for text in match.groups()[1:])
    summed = tuple([axis for axis, name in enumerate(kernel) if name != "o"])
    return Product(summed, {kernel.index("o"): out.index("f")})


def dot_dimensions(text: str) -> dict[str, tuple[int, ...]]:
    """Read `#stablehlo.dot<...>`: its four lists of dimensions, those left out empty."""
    found = {}
    for side in ("lhs", "rhs"):
        for what in ("batching", "contracting"):
            match = re.search(_FIELD.format(f"{side}_{what}_dimensions"), text)
            numbers = match[1].split(",") if match and match[1].strip() else []
            found[f"{side}_{what}"] = tuple([int(number) for number in numbers])
    return found


def _general(text: str, op: Operation) -> Product:
    lists = dot_dimensions(text)
    ranks = [len(shape_of(value.type)) for value in op.operands]
    # A result of dot_general is: batch dimensions, free ones of the left, free ones of the right operand.
    places = {axis: i for i, axis in enumerate(lists["rhs_batching"])}
    start = ranks[0] - len(lists["lhs_contracting"])
    taken = {*lists["rhs_batching"], *lists["rhs_contracting"]}
    free = [axis for axis in range(ranks[1]) if axis not in taken]
    return Product(lists["rhs_contracting"], {**places, **{axis: start + i for i, axis in enumerate(free)}})


def _accumulate(
    build: Builder, op: Operation, left: WrittenUniform, right: WrittenUniform, product: Product
) -> SSAValue:
    shape = shape_of(op.operands[1].type)
    counts = [shape[axis] for axis in product.summed]
    reach = _reach(left) * _reach(right)
    known = math.prod(counts) if min(counts, default=0) >= 0 else 1
    # The worst case decides: every product at the far ends, and all of one sign. Unknown sizes count as 1.
    wide = I32 if reach * known < _INT32 and max(left.storage.bits, right.storage.bits) <= 16 else I64
    kinds = (left.storage, right.storage)
    # StableHLO's interpreter sums a convolution in the type of its operands, a dot in that of its result.
    is_dot = name_of(op) != "stablehlo.convolution"
    plain = is_dot and wide == I32 and not any((*left.zero_points, *right.zero_points))
    same = kinds[0].bits == kinds[1].bits <= _NARROW and kinds[0].signed == kinds[1].signed
    factors = [
        bitcast(build, value, stored_type(value.type))
        if plain and same
        else _centred(build, value, kind, wide)
        for value, kind in zip(op.operands, (left, right), strict=True)
    ]
    result = with_element(op.results[0].type, wide)
    made = (
        _general_dot(op, factors, result) if name_of(op) == "stablehlo.dot" else like(op, factors, [result])
    )
    return build.insert(made).results[0]


def _general_dot(op: Operation, factors: Sequence[SSAValue], result: Attribute) -> Operation:
    """Write a dot as a `dot_general`, which more tools know."""
    rank = len(shape_of(factors[0].type))
    text = f"lhs_contracting_dimensions = [{rank - 1}], rhs_contracting_dimensions = [0]"
    numbers = foreign("stablehlo.dot", text)
    items = {**items_of(op), "dot_dimension_numbers": numbers}
    return make("stablehlo.dot_general", factors, [result], items)


def _reach(uniform: WrittenUniform) -> int:
    """The largest `|stored - zero_point|`."""
    store = uniform.storage
    return max(max(store.qmax - zero, zero - store.qmin) for zero in uniform.zero_points)


def _centred(build: Builder, value: SSAValue, uniform: WrittenUniform, wide: IntegerType) -> SSAValue:
    stored = convert(build, bitcast(build, value, stored_type(value.type)), wide)
    if not any(uniform.zero_points):
        return stored
    zeros = parameters(build, uniform.zero_points, uniform, stored, wide)
    return put(build, "subtract", [stored, zeros], stored.type)


def _requantize(
    build: Builder,
    op: Operation,
    total: SSAValue,
    kinds: tuple[WrittenUniform, WrittenUniform, WrittenUniform],
    product: Product,
) -> SSAValue:
    left, right, result = kinds
    kind = op.results[0].type
    axis = None if right.axis is None else product.places[right.axis]
    scales = _products(left, right)
    # The sum is the result already: multiplying by 1 in float would only lose digits.
    if _is_scale_of(scales, axis, left, right, result) and total.type == stored_type(kind):
        if any(result.zero_points):
            zeros = parameters(build, result.zero_points, result, total, I32)
            total = put(build, "add", [total, zeros], total.type)
        return bitcast(build, total, kind)
    real = convert(build, total, builtin.f32)
    row = WrittenUniform(result.storage, "f32", scales, (0,) * len(scales), axis)
    spread = parameters(build, scales, row, real, builtin.f32)
    real = put(build, "multiply", [real, spread], real.type)
    return put(build, "uniform_quantize", [real], kind)


def _products(left: WrittenUniform, right: WrittenUniform) -> tuple[float, ...]:
    """Scales of the sum, as float32: the product of the float32 scales, rounded once."""
    one = np.float32(left.scales[0])
    return tuple([float(one * np.float32(scale)) for scale in right.scales])


def _is_scale_of(
    scales: Sequence[float],
    axis: int | None,
    left: WrittenUniform,
    right: WrittenUniform,
    result: WrittenUniform,
) -> bool:
    """Whether a result has the scales of the sum: rounded before the product or after it."""
    if result.axis != axis or result.blocks is not None or len(result.scales) != len(scales):
        return False
    wanted = [float(np.float32(scale)) for scale in result.scales]
    late = [float(np.float32(left.scales[0] * scale)) for scale in right.scales]
    return all(scale in pair for scale, pair in zip(wanted, zip(scales, late, strict=True), strict=True))
