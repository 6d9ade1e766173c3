"""A StableHLO module brought into the form that is read as a model: one function, quant's own casts.

Calls of other functions are put in place, composites as their decompositions; `uniform_quantize`,
`uniform_dequantize` and `bitcast_convert` to or from a quantized type become `quant.qcast`, `dcast` and
`scast`, which state constraints. Source: StableHLO specification; JAX's lowered modules, where library
functions are calls.
"""

from typing import Final

from xdsl.builder import Builder
from xdsl.dialects import builtin, func
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from planner.errors import ModelError
from planner.formats.mlir.casts import DequantizeCastOp, QuantizeCastOp, StorageCastOp
from planner.formats.mlir.passes.dead_code import sweep
from planner.formats.mlir.passes.qdq_to_quantized import DEQUANTIZE, QUANTIZE
from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.stablehlo_ops import PREFIX, expressed_type, items_of, name_of
from planner.formats.mlir.types import uniform_of

_MAX_OPS: Final = 1_000_000
_COMPOSITE: Final = f"{PREFIX}composite"
_BITCAST: Final = f"{PREFIX}bitcast_convert"
_KEPT: Final = frozenset({DEQUANTIZE, QUANTIZE, _BITCAST, f"{PREFIX}constant"})
_WIDEST: Final = 16


def is_hlo(module: builtin.ModuleOp) -> bool:
    """Whether a module has ops of StableHLO."""
    return any(name_of(op).startswith(PREFIX) for op in module.walk())


def prepare(module: builtin.ModuleOp, main: func.FuncOp) -> None:
    """Put calls in place, name casts as `quant` does, erase dead ops; changes the module.

    Raises:
      StuckAt: calls that go in circles, or grow beyond a million ops; a call of an unknown function.
    """
    _inline(module, main)
    for other in [op for op in module.body.ops if isinstance(op, func.FuncOp) and op is not main]:
        Rewriter.erase_op(other)
    for op in list(module.walk()):
        _free_accumulators(op)
        _recast(op)
    sweep(module)


def model_function(module: builtin.ModuleOp) -> func.FuncOp:
    """The function that is the model: `main`, else the only public one, else the only one.

    Raises:
      ModelError: there is no such function.
    """
    functions = [op for op in module.body.ops if isinstance(op, func.FuncOp)]
    public = [op for op in functions if op.sym_visibility is None or op.sym_visibility.data != "private"]
    for group in ([op for op in functions if op.sym_name.data == "main"], public, functions):
        if len(group) == 1:
            return group[0]
    raise ModelError("1:1: a model is one function, or the one named @main, or the only public one")


def _inline(module: builtin.ModuleOp, main: func.FuncOp) -> None:
    homes = {op.sym_name.data: op for op in module.body.ops if isinstance(op, func.FuncOp)}
    depth: dict[Operation, tuple[str, ...]] = {}
    waiting = _calls(main)
    count = 0
    while waiting:
        call, name = waiting.pop()
        path = depth.get(call, ())
        home = homes.get(name)
        block = None if home is None else home.body.blocks.first
        if block is None or block.next_block is not None:
            raise StuckAt(call, f"@{name} is no function of one block in this module")
        if name in path or home is main:
            raise StuckAt(call, f"@{name} calls itself; a model is finite")
        known: dict[SSAValue, SSAValue] = dict(zip(block.args, call.operands, strict=True))
        results: list[SSAValue] = []
        for op in block.ops:
            if isinstance(op, func.ReturnOp):
                results = [known.get(value, value) for value in op.operands]
                continue
            copy = op.clone(known)
            Rewriter.insert_op(copy, InsertPoint.before(call))
            count += 1
            for inner, callee in _calls(copy):
                depth[inner] = (*path, name)
                waiting.append((inner, callee))
        if count > _MAX_OPS:
            raise StuckAt(call, f"calls unfold into more than {_MAX_OPS} ops")
        Rewriter.replace_op(call, [], results)


def _calls(op: Operation) -> list[tuple[Operation, str]]:
    """An op and those of its regions that stand for a function's ops, with its name."""
    return [(inner, callee) for inner in op.walk() if (callee := _callee(inner)) is not None]


def _callee(op: Operation) -> str | None:
    """The function that an op calls; a composite means what its decomposition does."""
    if isinstance(op, func.CallOp):
        return op.callee.root_reference.data
    found = items_of(op).get("decomposition") if name_of(op) == _COMPOSITE else None
    return found.root_reference.data if isinstance(found, builtin.SymbolRefAttr) else None


def _free_accumulators(op: Operation) -> None:
    """Let results wider than 16 bits be reals: sums on their way to a requantize, no choice of a type."""
    if not name_of(op).startswith(PREFIX) or name_of(op) in _KEPT:
        return
    for result in op.results:
        uniform = uniform_of(result.type)
        if uniform is not None and uniform.storage.bits > _WIDEST:
            Rewriter.replace_value_with_new_type(result, expressed_type(result.type))


def _recast(op: Operation) -> None:
    """Replace a cast of StableHLO by that of the quant dialect; a requantize by two of them."""
    name = name_of(op)
    if name not in (QUANTIZE, DEQUANTIZE, _BITCAST):
        return
    build = Builder(InsertPoint.before(op))
    value, kind = op.operands[0], op.results[0].type
    if name == _BITCAST:
        if not _is_stored(value) and not _is_stored(op.results[0]):
            return
        value = build.insert(StorageCastOp(value, kind)).result
    else:
        if uniform_of(value.type) is not None:
            value = build.insert(DequantizeCastOp(value, expressed_type(value.type))).result
        if name == QUANTIZE:
            value = build.insert(QuantizeCastOp(value, kind)).result
    Rewriter.replace_op(op, [], [value])


def _is_stored(value: SSAValue) -> bool:
    """Whether a value is quantized, by integers."""
    uniform = uniform_of(value.type)
    return uniform is not None and not uniform.storage.is_float
