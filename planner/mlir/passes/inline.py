"""Calls give way to the bodies that they call, and private functions that nobody calls go.

A function of several blocks, one without a body, one that calls itself in a circle, and a call or function
with `no_inline` stay as they are. Source: MLIR `inline`; func dialect.
"""

from collections.abc import Mapping

from xdsl.dialects import builtin, func
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from planner.mlir.text.read_structure import CALL, op_name


def inline(module: builtin.ModuleOp) -> None:
    """Put the ops of called functions in place of the calls, callees first."""
    functions = {op.sym_name.data: op for op in module.body.ops if isinstance(op, func.FuncOp)}
    done: dict[str, bool] = {}
    for name in functions:
        _settle(name, functions, done)
    called = {symbol for op in module.walk() for symbol in _symbols(op)}
    for name, function in functions.items():
        if name not in called and _is_private(function) and function.body.blocks:
            Rewriter.erase_op(function)


def _settle(name: str, functions: Mapping[str, func.FuncOp], done: dict[str, bool]) -> None:
    """Inline the calls of a function; `done` says of each whether it is finished."""
    done[name] = False
    for op in list(functions[name].walk()):
        callee = _callee(op)
        if callee not in functions:
            continue
        if callee not in done:
            _settle(callee, functions, done)
        # One that is not finished is on the way to this call: it calls itself.
        if done[callee] and "no_inline" not in op.attributes and _is_plain(functions[callee]):
            _put(op, functions[callee])
    done[name] = True


def _is_plain(function: func.FuncOp) -> bool:
    blocks = list(function.body.blocks)
    return (
        len(blocks) == 1
        and isinstance(blocks[0].last_op, func.ReturnOp)
        and "no_inline" not in function.attributes
    )


def _put(call: Operation, function: func.FuncOp) -> None:
    (block,) = function.body.blocks
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, call.operands, strict=True))
    for op in block.ops:
        if isinstance(op, func.ReturnOp):
            returned = [values.get(value, value) for value in op.operands]
            Rewriter.replace_op(call, [], returned)
        else:
            Rewriter.insert_op(op.clone(value_mapper=values), InsertPoint.before(call))


def _callee(op: Operation) -> str:
    symbol = op.attributes.get("callee") or op.properties.get("callee")
    is_call = op_name(op) == CALL and isinstance(symbol, builtin.SymbolRefAttr)
    return symbol.root_reference.data if is_call and isinstance(symbol, builtin.SymbolRefAttr) else ""


def _symbols(op: Operation) -> list[str]:
    """All functions that an op names, in calls and in attributes of ops that we do not know."""
    found = []
    for item in (*op.attributes.values(), *op.properties.values()):
        waiting = [item]
        while waiting:
            one = waiting.pop()
            if isinstance(one, builtin.SymbolRefAttr):
                found.append(one.root_reference.data)
            elif isinstance(one, builtin.ArrayAttr):
                waiting += one.data
    return found


def _is_private(function: func.FuncOp) -> bool:
    return function.sym_visibility is not None and function.sym_visibility.data == "private"
