"""A small evaluator of lowered modules: arith, tensor, linalg.generic and shape ops on numpy arrays.

Scalars may be arrays too: every scalar op is element-wise, so one call computes many scalars.
"""

import ml_dtypes
import numpy as np
from xdsl.dialects import builtin, func

from planner.formats.mlir.parse import parse_text
from planner.formats.mlir.types import element_of

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
OPERATORS = {
    "arith.addf": np.add,
    "arith.divf": np.divide,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.mulf": np.multiply,
    "arith.subf": np.subtract,
}


def run(text, array):
    """What the only function of a module returns for its only argument; stored integers as int64."""
    module, _ = parse_text(text)
    (function,) = [op for op in module.body.ops if isinstance(op, func.FuncOp)]
    block = function.body.blocks.first
    with np.errstate(all="ignore"):
        (result,) = _block(block, {block.args[0]: array})
    return result


def _block(block, known):
    for op in block.ops:
        operands = [known[value] for value in op.operands]
        if op.name in ("func.return", "linalg.yield"):
            return operands
        results = _op(op, operands)
        known |= dict(zip(op.results, results if isinstance(results, tuple) else (results,), strict=True))
    raise AssertionError("no terminator")


def _op(op, operands):
    if op.name in OPERATORS:
        return OPERATORS[op.name](*operands)
    return OPS[op.name](op, *operands)


def _constant(op):
    value = op.value
    kind = str(element_of(op.result.type))
    if isinstance(value, builtin.DenseIntOrFPElementsAttr):
        return np.array(value.get_values(), FLOATS.get(kind, np.int64)).reshape(value.get_shape())
    return np.asarray(value.value.data, FLOATS.get(kind, np.int64))


def _to_float(op, stored):
    kind = FLOATS[str(element_of(op.result.type))]
    bits = element_of(op.input.type).width.data
    unsigned = np.mod(stored, 1 << bits) if op.name == "arith.uitofp" else stored
    return np.asarray(unsigned).astype(kind)


def _to_integer(op, real):
    """Convert towards zero; what does not fit is undefined, and refused here."""
    bits = element_of(op.result.type).width.data
    low, high = (0, (1 << bits) - 1) if op.name == "arith.fptoui" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    wide = np.asarray(real).astype(np.float64)
    assert np.all((wide > low - 1) & (wide < high + 1)), "undefined: out of range or NaN"
    stored = np.trunc(wide).astype(np.int64)
    return np.where(stored >= 1 << bits - 1, stored - (1 << bits), stored)


def _extended(op, real):
    return np.asarray(real).astype(FLOATS[str(element_of(op.result.type))])


def _splat(op, scalar, *sizes):
    left = iter(sizes)
    return np.full([int(next(left)) if size < 0 else size for size in op.result.type.get_shape()], scalar)


def _generic(op, *operands):
    shape = operands[0].shape
    indices = np.indices(shape)
    block = op.body.blocks.first
    known = {}
    for argument, operand, attribute in zip(block.args, operands, op.indexing_maps.data, strict=True):
        if argument is block.args[-1]:
            break
        places = [expr.eval(list(indices), []) for expr in attribute.data.results]
        known[argument] = operand[tuple(np.broadcast_to(place, shape) for place in places)]
    (result,) = _block(block, known)
    return result


OPS = {
    "arith.constant": _constant,
    "arith.extf": _extended,
    "arith.fptosi": _to_integer,
    "arith.fptoui": _to_integer,
    "arith.sitofp": _to_float,
    "arith.uitofp": _to_float,
    "linalg.generic": _generic,
    "quant.scast": lambda _, value: value,
    "shape.num_elements": lambda _, shape: int(np.prod(shape)),
    "shape.shape_of": lambda _, array: np.array(array.shape),
    "shape.split_at": lambda _, shape, at: (shape[: int(at)], shape[int(at) :]),
    "tensor.dim": lambda _, array, axis: array.shape[int(axis)],
    "tensor.empty": lambda *_: None,
    "tensor.from_elements": lambda _, *items: np.array([int(item) for item in items]),
    "tensor.reshape": lambda _, array, shape: array.reshape([int(size) for size in shape]),
    "tensor.splat": _splat,
}
