"""Ops of other dialects where xDSL's own take less than MLIR's: casts of tensors, unranked reshapes, shapes.

They are carried and printed, not verified: `arith` verifies its ops itself.
Source: MLIR arith, tensor and shape dialects.
"""

from collections.abc import Sequence
from typing import Final

from xdsl.dialects import arith, builtin, func, linalg, math, scf, tensor
from xdsl.dialects.builtin import IndexType, TensorType
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

SHAPE: Final = TensorType(IndexType(), [builtin.DYNAMIC_INDEX])
"""A shape as a tensor, of unknown rank."""


class ConversionOp(IRDLOperation):
    """An element-wise cast of scalars or tensors."""

    input = operand_def()
    result = result_def()
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"
    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, kind: Attribute) -> None:
        super().__init__(operands=[value], result_types=[kind])


@irdl_op_definition
class SIToFPOp(ConversionOp):
    """Signed integers to floats."""

    name = "arith.sitofp"


@irdl_op_definition
class UIToFPOp(ConversionOp):
    """Unsigned integers to floats."""

    name = "arith.uitofp"


@irdl_op_definition
class FPToSIOp(ConversionOp):
    """Floats to signed integers, towards zero."""

    name = "arith.fptosi"


@irdl_op_definition
class FPToUIOp(ConversionOp):
    """Floats to unsigned integers, towards zero."""

    name = "arith.fptoui"


@irdl_op_definition
class ExtFOp(ConversionOp):
    """Floats to wider floats."""

    name = "arith.extf"


@irdl_op_definition
class TruncFOp(ConversionOp):
    """Floats to narrower floats."""

    name = "arith.truncf"


@irdl_op_definition
class ExtSIOp(ConversionOp):
    """Signed integers to wider ones."""

    name = "arith.extsi"


@irdl_op_definition
class ExtUIOp(ConversionOp):
    """Unsigned integers to wider ones."""

    name = "arith.extui"


@irdl_op_definition
class TruncIOp(ConversionOp):
    """Integers to narrower ones."""

    name = "arith.trunci"


@irdl_op_definition
class IndexCastOp(ConversionOp):
    """Indices to integers and back."""

    name = "arith.index_cast"


@irdl_op_definition
class ReshapeOp(IRDLOperation):
    """A tensor, ranked or not, in another shape."""

    name = "tensor.reshape"
    source = operand_def()
    shape = operand_def()
    result = result_def()
    assembly_format = (
        "$source `(` $shape `)` attr-dict `:` `(` type($source) `,` type($shape) `)` `->` type($result)"
    )
    traits = traits_def(Pure())

    def __init__(self, source: SSAValue, shape: SSAValue, kind: Attribute) -> None:
        super().__init__(operands=[source, shape], result_types=[kind])


@irdl_op_definition
class ShapeOfOp(IRDLOperation):
    """The shape of a tensor."""

    name = "shape.shape_of"
    arg = operand_def()
    result = result_def()
    assembly_format = "$arg attr-dict `:` type($arg) `->` type($result)"
    traits = traits_def(Pure())

    def __init__(self, value: SSAValue) -> None:
        super().__init__(operands=[value], result_types=[SHAPE])


@irdl_op_definition
class NumElementsOp(IRDLOperation):
    """The product of a shape."""

    name = "shape.num_elements"
    shape = operand_def()
    result = result_def()
    assembly_format = "$shape attr-dict `:` type($shape) `->` type($result)"
    traits = traits_def(Pure())

    def __init__(self, shape: SSAValue) -> None:
        super().__init__(operands=[shape], result_types=[IndexType()])


@irdl_op_definition
class SplitAtOp(IRDLOperation):
    """A shape, in two at an index."""

    name = "shape.split_at"
    operand = operand_def()
    index = operand_def()
    head = result_def()
    tail = result_def()
    traits = traits_def(Pure())

    def __init__(self, shape: SSAValue, index: SSAValue) -> None:
        super().__init__(operands=[shape, index], result_types=[SHAPE, SHAPE])


def _widened(dialect: Dialect, wider: Sequence[type[Operation]]) -> Dialect:
    names = {op.name for op in wider}
    kept = [op for op in dialect.operations if op.name not in names]
    return Dialect(dialect.name, [*kept, *wider], list(dialect.attributes))


CONVERSIONS: Final = (
    ExtFOp,
    ExtSIOp,
    ExtUIOp,
    FPToSIOp,
    FPToUIOp,
    IndexCastOp,
    SIToFPOp,
    TruncFOp,
    TruncIOp,
    UIToFPOp,
)
DIALECTS: Final = (
    builtin.Builtin,
    func.Func,
    _widened(arith.Arith, CONVERSIONS),
    linalg.Linalg,
    math.Math,
    Dialect("shape", [NumElementsOp, ShapeOfOp, SplitAtOp], []),
    scf.Scf,
    _widened(tensor.Tensor, [ReshapeOp]),
)
"""Dialects that modules may use in custom form; any other comes in generic form."""
