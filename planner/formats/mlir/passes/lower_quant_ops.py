"""`quant.qcast` and `quant.dcast` lowered to arith, tensor and linalg ops on stored integers.

Per tensor: scalars spread over the shape, or no shape at all. Per axis and per block: `linalg.generic`
with the parameters as tensors; a block is `dim floordiv size`. Unranked tensors are flattened around the
axis first, `shape` ops say how. The order of ops is upstream's. Source: MLIR pass `lower-quant-ops`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from xdsl.builder import Builder
from xdsl.dialects import arith, builtin, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    DenseIntOrFPElementsAttr,
    IndexType,
    TensorType,
    UnrankedTensorType,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from planner.formats.mlir.casts import CastOp, DequantizeCastOp, QuantizeCastOp, StorageCastOp
from planner.formats.mlir.foreign import NumElementsOp, ReshapeOp, ShapeOfOp, SplitAtOp
from planner.formats.mlir.passes.quantize_formulas import (
    DIGITS,
    constant,
    dequantized,
    saturated,
    scaled,
    splat,
    truncated,
)
from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.types import element_of, uniform_of, with_element
from planner.formats.mlir.verbatim_types import WrittenUniform

_ANY: Final = builtin.DYNAMIC_INDEX


def lower_quant_ops(module: builtin.ModuleOp, *, truncating: bool = False) -> None:
    """Lower every cast between reals and quantized types; storage casts stay.

    Args:
      module: changed in place.
      truncating: quantize as upstream does, towards zero and wrapping, rather than half to even and
        saturating.

    Raises:
      StuckAt: a cast whose storage holds floats, or whose expressed type has no constants here.
    """
    casts = [op for op in module.walk() if isinstance(op, QuantizeCastOp | DequantizeCastOp)]
    for op in casts:
        _check(op)
    for op in casts:
        _Lowering(op, truncating=truncating).run()


def _uniform(op: CastOp) -> WrittenUniform:
    uniform = uniform_of(op.result.type if isinstance(op, QuantizeCastOp) else op.input.type)
    if uniform is None:
        raise StuckAt(op, "this cast has no uniform type")
    return uniform


def _check(op: CastOp) -> None:
    uniform = _uniform(op)
    if uniform.storage.is_float:
        raise StuckAt(op, f"{uniform} stores floats; only integer storages are lowered")
    if uniform.expressed not in DIGITS:
        message = f"{uniform} expresses {uniform.expressed}; lowered are {', '.join(sorted(DIGITS))}"
        raise StuckAt(op, message)


class _Lowering:
    """One cast on its way down."""

    def __init__(self, op: CastOp, *, truncating: bool) -> None:
        self.op = op
        self.uniform = _uniform(op)
        self.quantizes = isinstance(op, QuantizeCastOp)
        self.truncating = truncating
        self.real = element_of(op.input.type if self.quantizes else op.result.type)
        self.integer = builtin.IntegerType(self.uniform.storage.bits)
        self.build = Builder(InsertPoint.before(op))

    def run(self) -> None:
        value: SSAValue = self.op.input
        if not self.quantizes:
            stored = with_element(value.type, self.integer)
            value = self.build.insert(StorageCastOp(value, stored)).result
        if isinstance(value.type, UnrankedTensorType):
            value = self.unranked(value)
        else:
            value = self.ranked(value, self.uniform.axis)
        if self.quantizes:
            value = self.build.insert(StorageCastOp(value, self.op.result.type)).result
        Rewriter.replace_op(self.op, [], [value])

    def unranked(self, value: SSAValue) -> SSAValue:
        """Flatten to (size) or (left, axis, right), lower, and give the shape back."""
        build, axis = self.build, self.uniform.axis
        shape = build.insert(ShapeOfOp(value)).result
        if axis is None:
            sizes: list[SSAValue] = [build.insert(NumElementsOp(shape)).result]
            flat = [_ANY]
        else:
            count = len(self.uniform.scales)
            sizes, flat = self.around(shape, axis, count), [_ANY, count, _ANY]
        wanted = tensor.FromElementsOp.create(
            operands=sizes, result_types=[TensorType(IndexType(), [len(sizes)])]
        )
        build.insert(wanted)
        ranked = TensorType(element_of(value.type), flat)
        flattened = build.insert(ReshapeOp(value, wanted.results[0], ranked)).result
        result = self.ranked(flattened, None if axis is None else 1)
        back = UnrankedTensorType(element_of(result.type))
        return build.insert(ReshapeOp(result, shape, back)).result

    def around(self, shape: SSAValue, axis: int, count: int) -> list[SSAValue]:
        """Sizes before, along and behind an axis of a tensor of unknown rank."""
        build = self.build
        here, behind = constant(build, axis, IndexType()), constant(build, axis + 1, IndexType())
        left = build.insert(NumElementsOp(build.insert(SplitAtOp(shape, here)).head)).result
        right = build.insert(NumElementsOp(build.insert(SplitAtOp(shape, behind)).tail)).result
        return [left, constant(build, count, IndexType()), right]

    def ranked(self, value: SSAValue, axis: int | None) -> SSAValue:
        if axis is None and self.uniform.blocks is None:
            return self.per_tensor(value)
        return self.per_slice(value, axis)

    def per_tensor(self, value: SSAValue) -> SSAValue:
        uniform = self.uniform
        scale = constant(self.build, uniform.scales[0], self.real)
        zero = constant(self.build, uniform.zero_points[0], self.integer)
        sizes = self.sizes(value)
        scale = splat(self.build, scale, sizes, value.type)
        kept = zero if uniform.zero_points[0] else None
        return self.convert(self.build, value, scale, kept, sizes)

    def per_slice(self, value: SSAValue, axis: int | None) -> SSAValue:
        """Lower with one scale a slice or block: the parameters are tensors that a `linalg.generic` reads."""
        uniform, kind = self.uniform, cast("TensorType[Attribute]", value.type)
        rank = len(kind.get_shape())
        grid = [len(uniform.scales)] if uniform.blocks is None else list(uniform.grid)
        scales = self.numbers(uniform.scales, grid, self.real)
        zeros = self.numbers(uniform.zero_points, grid, self.integer)
        result = TensorType(self.integer if self.quantizes else self.real, kind.get_shape())
        empty = self.build.insert(tensor.EmptyOp(self.sizes(value), result)).tensor
        every: list[AffineExpr] = [AffineDimExpr(i) for i in range(rank)]
        slices = [every[axis or 0]] if uniform.blocks is None else self.blocks(every)
        whole, part = (AffineMapAttr(AffineMap(rank, 0, tuple(dims))) for dims in (every, slices))
        generic = GenericOp(
            [value, scales, zeros],
            [empty],
            self.body(result.element_type),
            [whole, part, part, whole],
            [IteratorTypeAttr(IteratorType.PARALLEL)] * rank,
            [result],
        )
        return self.build.insert(generic).results[0]

    def blocks(self, dims: Sequence[AffineExpr]) -> list[AffineExpr]:
        """Index of the block of each dimension: `d`, `d floordiv size`, or 0 where it is one block."""
        sizes = dict(self.uniform.blocks or ())
        found: list[AffineExpr] = []
        for axis, dim in enumerate(dims):
            size = sizes.get(axis)
            if size is None:
                found.append(AffineConstantExpr(0))
            else:
                found.append(dim if size == 1 else dim // size)
        return found

    def body(self, made: Attribute) -> Region:
        taken = self.real if self.quantizes else self.integer
        block = Block(arg_types=[taken, self.real, self.integer, made])
        build = Builder(InsertPoint.at_end(block))
        result = self.convert(build, block.args[0], block.args[1], block.args[2], [])
        build.insert(YieldOp(result))
        return Region(block)

    def convert(
        self, build: Builder, value: SSAValue, scale: SSAValue, zero: SSAValue | None, sizes: list[SSAValue]
    ) -> SSAValue:
        """Quantize or dequantize a scalar or ranked tensor; `zero` None where it is 0."""

        def spread(scalar: SSAValue, shape: Attribute) -> SSAValue:
            return splat(build, scalar, sizes, shape)

        # Made where the formula needs it, so that the ops stand in upstream's order.
        offset = None if zero is None else partial(spread, zero, value.type)
        signed = self.uniform.storage.signed
        if not self.quantizes:
            real = with_element(value.type, self.real)
            return dequantized(build, value, scale, offset, real, signed=signed)
        result = scaled(build, value, scale, offset, signed=signed)
        form = truncated if self.truncating else saturated
        return form(build, result, self.uniform.storage, with_element(value.type, self.integer), spread)

    def sizes(self, value: SSAValue) -> list[SSAValue]:
        """Dynamic dimensions of a ranked tensor, in order."""
        if not isinstance(value.type, TensorType):
            return []
        found: list[SSAValue] = []
        for axis, size in enumerate(value.type.get_shape()):
            if size < 0:
                index = constant(self.build, axis, IndexType())
                found.append(self.build.insert(tensor.DimOp(value, index)).result)
        return found

    def numbers(self, values: Sequence[float], shape: Sequence[int], kind: Any) -> SSAValue:
        numbers = list(values)
        if isinstance(kind, builtin.IntegerType):
            half = 1 << kind.width.data - 1
            # `arith` constants are signless: an unsigned number
            # is written as the signed one of the same bits.
            numbers = [(int(number) + half) % (2 * half) - half for number in values]
        dense = DenseIntOrFPElementsAttr.from_list(TensorType(kind, shape), numbers)
        return self.build.insert(arith.ConstantOp(dense)).result
