"""Quantized types leave the headers of functions: integers go in and out, storage casts stand inside.

Signatures, arguments, returned values, and operands and results of calls become the storage's integers.
Source: MLIR pass `strip-func-quant-types`.
"""

from xdsl.dialects import builtin, func
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from planner.formats.mlir.casts import StorageCastOp
from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.types import uniform_of, with_element


def strip_func_quant_types(module: builtin.ModuleOp) -> None:
    """Strip every function of a module, and every call and return.

    Raises:
      StuckAt: a type whose storage holds floats, which no integer type stands for.
    """
    ops = [op for op in module.walk() if isinstance(op, func.FuncOp | func.ReturnOp | func.CallOp)]
    for op in ops:
        _check(op)
    stored: dict[SSAValue, SSAValue] = {}
    for op in ops:
        if isinstance(op, func.FuncOp):
            _strip_function(op, stored)
        if isinstance(op, func.CallOp):
            _strip_results(op, stored)
    for op in ops:
        _strip_operands(op, stored)
    for value in {*stored, *stored.values()}:
        if not value.uses and isinstance(value.owner, StorageCastOp):
            Rewriter.erase_op(value.owner)


def storage_of(kind: Attribute) -> Attribute | None:
    """The type of the stored integers of a quantized scalar or tensor; None for every other type."""
    uniform = uniform_of(kind)
    return None if uniform is None else with_element(kind, builtin.IntegerType(uniform.storage.bits))


def _check(op: Operation) -> None:
    kinds = [value.type for value in (*op.operands, *op.results)]
    if isinstance(op, func.FuncOp):
        kinds += [*op.function_type.inputs, *op.function_type.outputs]
    for kind in kinds:
        uniform = uniform_of(kind)
        if uniform is not None and uniform.storage.is_float:
            raise StuckAt(op, f"{uniform} stores floats; quant.scast knows integers only")


def _stripped(kind: Attribute) -> Attribute:
    return storage_of(kind) or kind


def _strip_function(function: func.FuncOp, stored: dict[SSAValue, SSAValue]) -> None:
    kind = function.function_type
    function.properties["function_type"] = builtin.FunctionType.from_lists(
        [_stripped(item) for item in kind.inputs], [_stripped(item) for item in kind.outputs]
    )
    block = function.body.blocks.first
    for argument in () if block is None else tuple(block.args):
        integer = storage_of(argument.type)
        if integer is not None and block is not None:
            _store(argument, integer, InsertPoint.at_start(block), stored)


def _strip_results(call: func.CallOp, stored: dict[SSAValue, SSAValue]) -> None:
    for result in call.results:
        integer = storage_of(result.type)
        if integer is not None:
            _store(result, integer, InsertPoint.after(call), stored)


def _store(value: SSAValue, integer: Attribute, point: InsertPoint, stored: dict[SSAValue, SSAValue]) -> None:
    """Make integers of a value, and let its users read them through a cast."""
    quantized = value.type
    value = Rewriter.replace_value_with_new_type(value, integer)
    cast = StorageCastOp(value, quantized)
    value.replace_all_uses_with(cast.result)
    cast.operands[0] = value
    Rewriter.insert_op(cast, point)
    stored[cast.result] = value


def _strip_operands(op: Operation, stored: dict[SSAValue, SSAValue]) -> None:
    for i, operand in enumerate(op.operands):
        integer = storage_of(operand.type)
        if integer is None:
            continue
        if operand not in stored:
            cast = StorageCastOp(operand, integer)
            owner = operand.owner
            after = InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(owner)
            Rewriter.insert_op(cast, after)
            stored[operand] = cast.result
        op.operands[i] = stored[operand]
