"""Our `quant` dialect on xDSL: the ops of annotated modules, and the dialect with all its types and ops.

`qplan.region` is the RFC's logical kernel. Source: MLIR quant dialect; the RFC's region op; docs/mlir.md.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BytesAttr,
    NoneType,
    StringAttr,
    TensorType,
    UnitAttr,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    attr_def,
    irdl_op_definition,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from planner.errors import QTypeError
from planner.formats.mlir.casts import DequantizeCastOp, QuantizeCastOp, StatisticsOp, StorageCastOp
from planner.formats.mlir.integrity import misfit
from planner.formats.mlir.types import TYPES, QuantType, uniform_of, with_element
from planner.formats.mlir.verbatim_types import as_qtype
from planner.ir.types.qtypes import AnyType
from planner.ir.types.qtypes import NoneType as KeepFloat

PLAN: Final = "qplan.plan"
"""The attribute of a module that is a plan (docs/mlir.md)."""


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends the body of a region and names its results."""

    name = "qplan.return"
    values = var_operand_def()
    traits = traits_def(IsTerminator())


@irdl_op_definition
class RegionOp(IRDLOperation):
    """A logical kernel. One spec a port; the spec of an absent optional port is `none`."""

    name = "qplan.region"
    values = var_operand_def()
    results_ = var_result_def()
    body = region_def()
    kernel = opt_attr_def(Attribute)
    logical_kernel = opt_attr_def(Attribute)
    input_specs = attr_def(ArrayAttr[Attribute])
    output_specs = attr_def(ArrayAttr[Attribute])
    traits = traits_def(IsolatedFromAbove())

    def verify_(self) -> None:
        """Check that specs, operands, results and body agree in number and type."""
        if not isinstance(self.kernel or self.logical_kernel, StringAttr | BytesAttr):
            raise VerifyException("qplan.region needs a 'kernel' attribute, a string")
        for what, specs, values in (
            ("input_specs", self.input_specs, self.values),
            ("output_specs", self.output_specs, self.results_),
        ):
            _verify_specs(what, specs.data, values, planned=_is_planned(self))
        self._verify_body()

    def _verify_body(self) -> None:
        block = self.body.blocks.first
        if block is None:
            return
        if block.next_block is not None:
            raise VerifyException("the body of qplan.region is one block")
        if [arg.type for arg in block.args] != [value.type for value in self.values]:
            raise VerifyException("the arguments of the body must have the types of the operands")
        last = block.last_op
        if not isinstance(last, ReturnOp):
            raise VerifyException("the body of qplan.region ends with qplan.return")
        if [value.type for value in last.values] != [value.type for value in self.results_]:
            raise VerifyException("qplan.return must give the types of the results")


def _is_planned(op: Operation) -> bool:
    """Whether an op lies in the module of a plan, whose scales are float32 whatever float a tensor has."""
    parent = op.parent_op()
    while parent is not None and PLAN not in parent.attributes:
        parent = parent.parent_op()
    return parent is not None


def _verify_specs(
    what: str, specs: Sequence[Attribute], values: Sequence[SSAValue], *, planned: bool
) -> None:
    present = [spec for spec in specs if not isinstance(spec, NoneType)]
    if len(present) != len(values):
        raise VerifyException(
            f"{what} has {len(present)} specs (absent ports not counted) for {len(values)} values"
        )
    for i, (spec, value) in enumerate(zip(present, values, strict=True)):
        for item in spec.data if isinstance(spec, ArrayAttr) else (spec,):
            problem = _misfit(item, value.type, planned=planned)
            if problem:
                raise VerifyException(f"{what}[{i}] is incompatible with {value.type}: {problem}")


def _misfit(spec: Attribute, kind: Attribute, *, planned: bool) -> str:
    """Say why a spec cannot stand for a value of this type; "" where it can."""
    if not isinstance(kind, TensorType | UnrankedTensorType) or isinstance(spec, UnitAttr):
        return ""
    element: Attribute = kind.element_type
    if spec == element or (isinstance(spec, AnyFloat) and isinstance(element, AnyFloat)):
        return ""
    if not isinstance(spec, QuantType):
        return f"{spec} is neither a quantized type, a float, nor the element type {element}"
    if not isinstance(element, AnyFloat):
        return f"{spec} needs floats"
    return _misfit_type(spec, kind, {str(element), "f32"} if planned else {str(element)})


def _misfit_type(spec: QuantType, kind: Attribute, elements: Collection[str]) -> str:
    try:
        fact = as_qtype(spec.data)
    except QTypeError as error:
        return error.message
    if isinstance(fact, KeepFloat) or (isinstance(fact, AnyType) and fact.expressed is None):
        return ""
    expressed: Any = getattr(fact, "expressed", None)
    if expressed not in elements and not (expressed == "tf32" and "f32" in elements):
        return f"{spec} expresses {expressed}"
    uniform = uniform_of(spec)
    # Specs are ours, and say of a port what JSON says: the last block may be shorter, as in ONNX.
    return "" if uniform is None else misfit(uniform, with_element(kind, spec), short_block=True)


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """Data known before running: its numbers as `value`, or only its `range`."""

    name = "qplan.constant"
    result = result_def()


OPS: Final = (DequantizeCastOp, QuantizeCastOp, StorageCastOp)
OUR_OPS: Final = (ConstantOp, RegionOp, ReturnOp, StatisticsOp)
Quant: Final = Dialect("quant", list(OPS), list(TYPES))
"""Upstream's ops, and all types: those that upstream has not are read as `!quant` and as `!qplan`."""
Qplan: Final = Dialect("qplan", list(OUR_OPS), [])
"""Ops that upstream has not; the RFC calls them `quant.*`, and so they are read too."""
