"""Calls give way to the bodies that they call, and private functions that nobody calls go.

A function of several blocks, one without a body, one that calls itself in a circle, and a call or function
with `no_inline` stay as they are. Source: MLIR `inline`; func dialect.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from xdsl.dialects import builtin, func
from xdsl.ir import Operation, ParametrizedAttribute, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.text.read_structure import CALL, op_name

_SYMBOL: Final = re.compile(r'@(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_][\w$.]*))')
"""A symbol in the text of an attribute that nobody here knows."""


MOST: Final = 250_000
"""Ops that calls of one module may unfold into: functions that call each other twice double at each step."""


def inline(module: builtin.ModuleOp) -> None:
    """Put the ops of called functions in place of the calls, callees first.

    Raises:
      StuckAt: calls that unfold into more than `MOST` ops.
    """
    functions = {op.sym_name.data: op for op in module.body.ops if isinstance(op, func.FuncOp)}
    _settle(functions)
    called = {symbol for op in module.walk() for symbol in _symbols(op)}
    for name, function in functions.items():
        if name not in called and _is_private(function) and function.body.blocks:
            Rewriter.erase_op(function)


def _settle(functions: Mapping[str, func.FuncOp]) -> None:
    """Inline the calls of all functions, each behind the functions that it calls."""
    finished: dict[str, bool] = {}
    sizes: dict[str, int] = {}
    count = 0
    for root in functions:
        path = [] if root in finished else [root]
        left: dict[str, list[Operation]] = {}
        while path:
            name = path[-1]
            if name not in left:
                finished[name] = False
                left[name] = list(functions[name].walk())[::-1]
            ops = left[name]
            while ops and (callee := _callee(ops[-1])) not in functions:
                ops.pop()
            if not ops:
                sizes[name] = sum(1 for _ in functions[name].walk())
                finished[path.pop()] = True
            elif callee not in finished:
                path.append(callee)
            else:
                call = ops.pop()
                # One that is not finished is on the way to this call: it calls itself.
                if finished[callee] and "no_inline" not in call.attributes and _is_plain(functions[callee]):
                    count += sizes[callee]
                    if count > MOST:
                        raise StuckAt(call, f"calls unfold into more than {MOST} ops")
                    _put(call, functions[callee])


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


def _symbols(op: Operation) -> Iterator[str]:
    """All symbols that the attributes of an op name, however deep; nested symbols by their first name."""
    waiting: list[object] = [*op.attributes.values(), *op.properties.values()]
    while waiting:
        one = waiting.pop()
        if isinstance(one, builtin.SymbolRefAttr):
            yield one.root_reference.data
        elif isinstance(one, builtin.UnregisteredAttr):
            yield from (quoted or plain for quoted, plain in _SYMBOL.findall(one.value.data))
        elif isinstance(one, ParametrizedAttribute):
            waiting += one.parameters
        elif isinstance(one, builtin.ArrayAttr):
            waiting += one.data
        elif isinstance(one, builtin.DictionaryAttr):
            waiting += one.data.values()


def _is_private(function: func.FuncOp) -> bool:
    return function.sym_visibility is not None and function.sym_visibility.data == "private"
