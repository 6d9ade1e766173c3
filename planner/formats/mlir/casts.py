"""The dialect's element-wise ops: `quant.qcast`, `dcast`, `scast`, and the historic `stats`.

Verifiers follow the dialect page. A zero point outside the storage is legal to MLIR and useless to us: a
cast may have one (`zero_point_warning`), a constraint may not. Source: MLIR quant dialect, "Operations";
docs/specification.md, section 9.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_attr_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from planner.formats.mlir.integrity import bad_zero_point, misfit
from planner.formats.mlir.types import element_of, uniform_of
from planner.formats.mlir.verbatim_types import shape_text


class CastOp(IRDLOperation):
    """Common form of the three casts: one operand, one result, the same shape."""

    input = operand_def()
    result = result_def()
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"
    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, kind: Attribute) -> None:
        super().__init__(operands=[value], result_types=[kind])

    def verify_same_shape(self) -> None:
        """Check that operand and result are both scalars, or tensors of one shape."""
        ours, theirs = _carrier(self.input.type), _carrier(self.result.type)
        if ours != theirs:
            raise VerifyException(
                f"{self.name}: input and result are both scalars or both tensors with matching shape; "
                f"these are {ours} and {theirs}"
            )


@irdl_op_definition
class QuantizeCastOp(CastOp):
    """Reals to a quantized type."""

    name = "quant.qcast"

    def verify_(self) -> None:
        """Check the rules of the dialect page."""
        _verify_reals(self, self.input.type, self.result.type, sides=("operand", "result"))


@irdl_op_definition
class DequantizeCastOp(CastOp):
    """A quantized type to reals."""

    name = "quant.dcast"

    def verify_(self) -> None:
        """Check the rules of the dialect page."""
        _verify_reals(self, self.result.type, self.input.type, sides=("result", "operand"))


@irdl_op_definition
class StorageCastOp(CastOp):
    """A quantized type to the integers that store it, or back."""

    name = "quant.scast"

    def verify_(self) -> None:
        """Check the rules of the dialect page."""
        kinds = [self.input.type, self.result.type]
        uniforms = [uniform_of(kind) for kind in kinds]
        integers = [_signless(kind) for kind in kinds]
        uniform, integer = uniforms[0] or uniforms[1], integers[0] or integers[1]
        if uniform is None or integer is None:
            raise VerifyException(
                "quant.scast casts between a quantized type and a signless integer, scalars or tensors; "
                f"these are {kinds[0]} and {kinds[1]}"
            )
        self.verify_same_shape()
        if uniform.storage.is_float or uniform.storage.bits != integer.width.data:
            store = uniform.storage.name
            raise VerifyException(
                f"quant.scast: storage {store} differs in width from the integer type {integer}"
            )
        problem = misfit(uniform, kinds[0] if uniforms[0] else kinds[1])
        if problem:
            raise VerifyException(f"quant.scast: {problem}")


def _verify_reals(op: CastOp, real: Attribute, quantized: Attribute, *, sides: tuple[str, str]) -> None:
    uniform = uniform_of(quantized)
    if uniform is None:
        message = f"{op.name}: the {sides[1]} must be a scalar or tensor of quantized type, it is {quantized}"
        raise VerifyException(message)
    element = element_of(real)
    if not isinstance(element, AnyFloat):
        message = f"{op.name}: the {sides[0]} must be a scalar or tensor of floating-point, it is {real}"
        raise VerifyException(message)
    op.verify_same_shape()
    if str(element) != uniform.expressed:
        raise VerifyException(
            f"{op.name}: {uniform} expresses {uniform.expressed}, the {sides[0]} holds {element}"
        )
    problem = misfit(uniform, quantized)
    if problem:
        raise VerifyException(f"{op.name}: {problem}")


def zero_point_warning(op: CastOp) -> str:
    """Say which zero point of a cast's type lies outside its storage; "" where none does."""
    uniform = uniform_of(op.result.type) or uniform_of(op.input.type)
    return "" if uniform is None else bad_zero_point(uniform)


def _carrier(kind: Attribute) -> str:
    if isinstance(kind, UnrankedTensorType):
        return "an unranked tensor"
    return f"a tensor of shape {shape_text(kind.get_shape())}" if isinstance(kind, TensorType) else "a scalar"


def _signless(kind: Attribute) -> IntegerType | None:
    element = element_of(kind)
    if isinstance(element, IntegerType) and element.signedness.data is Signedness.SIGNLESS:
        return element
    return None


@irdl_op_definition
class StatisticsOp(IRDLOperation):
    """Observed ranges of a value, which passes through: of the layer, and of each slice of an axis."""

    name = "qplan.stats"
    arg = operand_def()
    result = result_def()
    layer_stats = opt_attr_def(Attribute, attr_name="layerStats")
    axis_stats = opt_attr_def(Attribute, attr_name="axisStats")
    axis = opt_attr_def(IntegerAttr)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Check types and shapes of operand, result and statistics."""
        kind = self.arg.type
        if not isinstance(element_of(kind), AnyFloat) or kind != self.result.type:
            raise VerifyException(
                f"qplan.stats passes a tensor of floats through; {kind} becomes {self.result.type}"
            )
        layer = _floats("layerStats", self.layer_stats)
        if layer != (2,):
            raise VerifyException(f"layerStats must have shape [2], it has {shape_text(layer)}")
        if self.axis_stats is None:
            return
        found = _floats("axisStats", self.axis_stats)
        if self.axis is None:
            raise VerifyException("axis must be specified for axisStats")
        axis, shape = self.axis.value.data, kind.get_shape() if isinstance(kind, TensorType) else None
        size = shape[axis] if shape is not None and 0 <= axis < len(shape) else None
        if axis < 0 or (shape is not None and size is None):
            raise VerifyException(f"axisStats: {kind} has no axis {axis}")
        if len(found) != 2 or found[1] != 2 or (size is not None and size not in (-1, found[0])):
            raise VerifyException(
                f"axisStats must have shape [N, 2], N the size of axis {axis} of {kind}; "
                f"it has {shape_text(found)}"
            )


def _floats(name: str, attribute: Any) -> Sequence[int]:
    if not isinstance(attribute, DenseIntOrFPElementsAttr):
        raise VerifyException(f"qplan.stats needs {name}, a dense attribute of floats")
    if not isinstance(attribute.get_element_type(), AnyFloat):
        raise VerifyException(f"{name} must have a floating point element type")
    return tuple(attribute.get_shape())
