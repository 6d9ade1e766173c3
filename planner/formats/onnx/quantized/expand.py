"""Expand: operators on stored integers as DequantizeLinear, the float op, QuantizeLinear.

ONNX defines them so. DequantizeLinear then moves behind ops that only move data, so that
pairs stand together. Everything downstream reads pairs alone. Source: ONNX and onnxruntime operator pages.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from onnx import TensorProto

from planner.errors import ModelError
from planner.formats.onnx.quantized.dialect import MICROSOFT
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.formats.onnx.quantized.quantizers import Reader, reader_of
from planner.ir.graph import Graph, Op, Value
from planner.ops import OPERATORS
from planner.ops.definition import always

Expansion: TypeAlias = Callable[[Op, Draft], None]

_FLOAT: Final = "f32"


def expand(graph: Graph) -> Graph:
    """Expand every operator on stored integers; the same graph if there is none.

    Raises:
      ModelError: a bias that does not fit the scales that give its unit.
    """
    if not any(op.type in EXPANSIONS for op in graph.ops):
        return graph
    draft = draft_of(graph)
    for op in graph.ops:
        rule = EXPANSIONS.get(op.type)
        if rule is None:
            draft.ops.append(op)
            continue
        rule(op, draft)
    used = {op.type.rpartition("::")[0] for op in draft.ops}
    done = draft.finish()
    return replace(done, opsets={key: n for key, n in done.opsets.items() if not key or key in used})


def lift(graph: Graph) -> Graph:
    """Move each DequantizeLinear of one scale behind the ops that move its stored integers."""
    reader = reader_of(graph)
    moving = [at for at, op in enumerate(graph.ops) if _moves_stored(op, reader)]
    if not moving:
        return graph
    draft = draft_of(graph)
    rewired: dict[str, str] = {}
    ops = {at: graph.ops[at] for at in moving}
    for at, op in enumerate(graph.ops):
        if at in ops:
            rewired |= _lifted(op, draft, rewired, reader)
        elif op.type == "DequantizeLinear" and op.inputs[0] in rewired:
            draft.emit(op, "Identity", rewired[op.inputs[0]], out=op.outputs[0])
        else:
            draft.ops.append(op)
    return draft.finish()


def _lifted(op: Op, draft: Draft, rewired: Mapping[str, str], reader: Reader) -> dict[str, str]:
    grid = _next_grid(op, reader) or ()
    moved = len(op.inputs) if op.type == "Concat" else 1
    sources = [rewired.get(name) or _dequantized(op, draft, name, grid) for name in op.inputs[:moved]]
    result = draft.emit(op, op.type, *sources, *op.inputs[moved:], dtype=_FLOAT, attributes=op.attributes)
    return {op.outputs[0]: result}


def _dequantized(op: Op, draft: Draft, name: str, grid: Sequence[str]) -> str:
    source = draft.emit(op, "DequantizeLinear", name, *grid, dtype=_FLOAT)
    draft.values[source] = Value(source, draft.graph.values[name].shape, _FLOAT)
    return source


def _moves_stored(op: Op, reader: Reader) -> bool:
    """Whether an op moves stored integers that only DequantizeLinears of one grid read in the end."""
    if op.type not in _MOVEMENT or reader.graph.values[op.inputs[0]].dtype not in ("i8", "u8", "i16", "u16"):
        return False
    return len([out for out in op.outputs if out]) == 1 and _next_grid(op, reader) is not None


def _next_grid(op: Op, reader: Reader) -> tuple[str, ...] | None:
    """Scale and zero point of all DequantizeLinears behind an op, through further data-movement operators."""
    out = op.outputs[0]
    if out in reader.graph.outputs:
        return None
    grids = set()
    for user in (other for other in reader.graph.ops if out in other.inputs):
        if user.type == "DequantizeLinear":
            scale = reader.array(user.inputs[1])
            grids.add(tuple(user.inputs[1:]) if scale is not None and scale.size == 1 else None)
        elif user.type in _MOVEMENT:
            grids.add(_next_grid(user, reader))
        else:
            return None
    return grids.pop() if len(grids) == 1 else None


def _real(op: Op, draft: Draft, operands: Sequence[str], axis: int | None = None) -> str:
    """Append the DequantizeLinear of (tensor, scale, zero point)."""
    tensor, scale, zero = operands
    attributes = {} if axis is None else {"axis": axis}
    inputs = (tensor, scale, zero) if zero else (tensor, scale)
    result = draft.emit(op, "DequantizeLinear", *inputs, dtype=_FLOAT, attributes=attributes)
    draft.values[result] = Value(result, draft.graph.values[tensor].shape, _FLOAT)
    return result


def _quantize(op: Op, draft: Draft, real: str, grid: Sequence[str]) -> None:
    inputs = (real, *(name for name in grid if name))
    draft.emit(op, "QuantizeLinear", *inputs, out=op.outputs[0])


Grids: TypeAlias = Callable[[Op], tuple[list[Sequence[str]], Sequence[str]]]


def _stored_result(kind: str, operands: int, grids: Grids) -> Expansion:
    """An op on `operands` stored tensors, each with its grid, and a stored result."""

    def apply(op: Op, draft: Draft) -> None:
        if op.attributes.get("channels_last", 0):
            draft.ops.append(op)
            return
        sides, goal = grids(op)
        reals = [_real(op, draft, side) for side in sides[:operands]]
        attributes = {key: item for key, item in op.attributes.items() if key not in _CONTRIB}
        real = draft.emit(op, kind, *reals, dtype=_FLOAT, attributes=attributes)
        _quantize(op, draft, real, goal)

    return apply


def _pair(op: Op) -> tuple[list[Sequence[str]], Sequence[str]]:
    names = op.inputs
    return [names[0:3], names[3:6]], names[6:8]


def _single(op: Op) -> tuple[list[Sequence[str]], Sequence[str]]:
    return [op.inputs[0:3]], op.inputs[3:5]


def _qlinear_conv(op: Op, draft: Draft) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = op.inputs
    reals = [_real(op, draft, (x, x_scale, x_zero)), _real(op, draft, (w, w_scale, w_zero), axis=0)]
    if bias and bias[0]:
        reals.append(_bias(op, draft, bias[0], (x_scale, w_scale)))
    real = draft.emit(op, "Conv", *reals, dtype=_FLOAT, attributes=op.attributes)
    _quantize(op, draft, real, (y_scale, y_zero))


def _bias(op: Op, draft: Draft, bias: str, scales: tuple[str, str]) -> str:
    """A bias in units of the product of two scales, as reals."""
    x, w, stored = (draft.array(name) for name in (*scales, bias))
    if x is not None and w is not None and stored is not None:
        try:
            real = stored.astype(np.float64) * (x.astype(np.float64) * w).reshape(-1)
        except ValueError as error:
            shapes = [list(array.shape) for array in (stored, x, w)]
            raise ModelError(
                f"{op.type.rpartition('::')[2]} at {op.name!r}: its bias {bias!r} of the shape {shapes[0]} "
                f"does not fit scales of the shapes {shapes[1]} and {shapes[2]}"
            ) from error
        return draft.constant(f"{bias}/real", real.astype(np.float32))
    wide = draft.emit(op, "Cast", bias, dtype=_FLOAT, attributes={"to": TensorProto.FLOAT})
    product = draft.emit(op, "Mul", *scales, dtype=_FLOAT)
    draft.values[product] = Value(product, draft.graph.values[scales[1]].shape, _FLOAT)
    return draft.emit(op, "Mul", wide, product, dtype=_FLOAT)


def _qgemm(op: Op, draft: Draft) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, *rest = op.inputs
    bias, grid = (rest[0] if rest else ""), rest[1:]
    axis = 0 if op.attributes.get("transB", 0) else 1
    reals = [_real(op, draft, (a, a_scale, a_zero)), _real(op, draft, (b, b_scale, b_zero), axis=axis)]
    if bias:
        reals.append(_bias(op, draft, bias, (a_scale, b_scale)))
    real = draft.emit(op, "Gemm", *reals, dtype=_FLOAT, attributes=op.attributes)
    # Without a zero point it gives reals, whatever its scale: so onnxruntime.
    if grid[1:2] and grid[1]:
        _quantize(op, draft, real, grid)
    else:
        draft.emit(op, "Identity", real, out=op.outputs[0])


def _qlinear_matmul(op: Op, draft: Draft) -> None:
    sides, goal = _pair(op)
    reals = [_real(op, draft, sides[0]), _real(op, draft, sides[1], axis=-1)]
    _quantize(op, draft, draft.emit(op, "MatMul", *reals, dtype=_FLOAT), goal)


def _matmul_to_float(op: Op, draft: Draft) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (*op.inputs, *[""] * 7)[:7]
    if any(len(draft.graph.values[name].shape or ()) > 1 for name in (b_scale, b_zero) if name):
        draft.ops.append(op)  # a scale per column of each of many matrices: no axis of a tensor says that
        return
    reals = [_real(op, draft, (a, a_scale, a_zero)), _real(op, draft, (b, b_scale, b_zero), axis=-1)]
    if not bias:
        draft.emit(op, "MatMul", *reals, out=op.outputs[0])
        return
    draft.emit(op, "Add", draft.emit(op, "MatMul", *reals, dtype=_FLOAT), bias, out=op.outputs[0])


def _qlinear_concat(op: Op, draft: Draft) -> None:
    triples = [op.inputs[i : i + 3] for i in range(2, len(op.inputs), 3)]
    reals = [_real(op, draft, triple) for triple in triples]
    real = draft.emit(op, "Concat", *reals, dtype=_FLOAT, attributes=op.attributes)
    _quantize(op, draft, real, op.inputs[:2])


def _qlinear_where(op: Op, draft: Draft) -> None:
    condition, *rest = op.inputs
    reals = [_real(op, draft, rest[0:3]), _real(op, draft, rest[3:6])]
    _quantize(op, draft, draft.emit(op, "Where", condition, *reals, dtype=_FLOAT), rest[6:8])


def _integer_product(kind: str) -> Expansion:
    """MatMulInteger or ConvInteger: a float product of the shifted integers, then int32."""

    def apply(op: Op, draft: Draft) -> None:
        zeros = [*op.inputs[2:4], "", ""][:2]
        shapes = [draft.graph.values[name].shape or () if name else () for name in zeros]
        if any(dim != 1 for dim in shapes[0]) or len(shapes[1]) > 1:
            # A zero point per row, or per column of each of many matrices: no axis of a tensor says that.
            draft.ops.append(op)
            return
        unit = draft.constant(f"{op.outputs[0]}/unit", np.asarray(1, np.float32))
        axis = 0 if kind == "Conv" else -1
        sides = [(op.inputs[0], unit, zeros[0]), (op.inputs[1], unit, zeros[1])]
        columns = math.prod(dim if isinstance(dim, int) else 1 for dim in shapes[1])
        per_axis = columns > 1
        if per_axis:
            units = draft.constant(f"{op.outputs[0]}/units", np.ones(columns, np.float32))
            sides[1] = (op.inputs[1], units, zeros[1])
        reals = [_real(op, draft, sides[0]), _real(op, draft, sides[1], axis=axis if per_axis else None)]
        real = draft.emit(op, kind, *reals, dtype=_FLOAT, attributes=op.attributes)
        draft.emit(op, "Cast", real, out=op.outputs[0], attributes={"to": TensorProto.INT32})

    return apply


_CONTRIB: Final = frozenset({"channels_last", "opset"})
_MOVEMENT: Final = {name for name, one in OPERATORS.items() if one.indices and one.moves is always} - {
    "Split"
} | {"MaxPool"}

EXPANSIONS: Final[Mapping[str, Expansion]] = {
    "ConvInteger": _integer_product("Conv"),
    "MatMulInteger": _integer_product("MatMul"),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    f"{MICROSOFT}::MatMulIntegerToFloat": _matmul_to_float,
    f"{MICROSOFT}::QGemm": _qgemm,
    f"{MICROSOFT}::QLinearAdd": _stored_result("Add", 2, _pair),
    f"{MICROSOFT}::QLinearAveragePool": _stored_result("AveragePool", 1, _single),
    f"{MICROSOFT}::QLinearConcat": _qlinear_concat,
    f"{MICROSOFT}::QLinearGlobalAveragePool": _stored_result("GlobalAveragePool", 1, _single),
    f"{MICROSOFT}::QLinearLeakyRelu": _stored_result("LeakyRelu", 1, _single),
    f"{MICROSOFT}::QLinearMul": _stored_result("Mul", 2, _pair),
    f"{MICROSOFT}::QLinearSigmoid": _stored_result("Sigmoid", 1, _single),
    f"{MICROSOFT}::QLinearSoftmax": _stored_result("Softmax", 1, _single),
    f"{MICROSOFT}::QLinearWhere": _qlinear_where,
}
