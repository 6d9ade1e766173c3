"""Lowering: QONNX ops as plain ONNX ops that compute the same numbers, bit for bit.

Quant becomes Div, Add, Clip, Round (or Floor, Ceil, ...), Sub, Mul in float32, in the order of its
definition; one on constants becomes its result. An op whose parameters are computed at run time, or that
has no such form (FloatQuant, MultiThreshold), stays. Source: docs/qonnx.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.dtypes import NUMPY, dtype_of, enum_of
from planner.formats.onnx.naming import unused
from planner.formats.onnx.quantized.dialect import (
    BIPOLAR,
    FLOAT_QUANT,
    MULTI_THRESHOLD,
    QUANT,
    TRUNC,
    rounding_of,
)
from planner.formats.onnx.quantized.formulas import (
    ROUNDINGS,
    Array,
    bipolar,
    bounds,
    float_quant,
    multi_threshold,
    quant,
    trunc,
    trunc_scaled,
)
from planner.ir.graph import Constant, Graph, Op, Value

Operand: TypeAlias = Array | str

_F32: Final = np.dtype(np.float32)
MOST_THRESHOLDS: Final = 16
_PIECE: Final = 1 << 16
_LAYOUTS: Final[Mapping[int, str]] = {2: "NC", 3: "NWC", 4: "NCHW"}


@dataclass(slots=True)
class Draft:
    """Ops, values and constants being added to a graph."""

    graph: Graph
    taken: set[str]
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def array(self, name: str) -> Array | None:
        """The numbers of a constant, old or new; None where it is none."""
        if name in self.constants:
            return self.constants[name]
        constant = self.graph.constants.get(name)
        return None if constant is None else constant.array

    def constant(self, stem: str, array: Array) -> str:
        """Add a constant under a free name."""
        name = unused(stem, self.taken)
        self.constants[name] = array
        self.values[name] = Value(name, array.shape, dtype_of(array))
        return name

    def set_constant(self, name: str, array: Array) -> None:
        """Make a value of the graph a constant."""
        self.constants[name] = array
        old = self.graph.values[name]
        self.values[name] = replace(old, shape=array.shape, dtype=dtype_of(array))

    def emit(
        self,
        op: Op,
        kind: str,
        *inputs: str,
        out: str = "",
        dtype: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Append an op that stands for a step of `op`, and give its result."""
        result = out or unused(f"{op.outputs[0]}/{kind.lower()}", self.taken)
        if not out:
            like = self.graph.values[op.outputs[0]]
            self.values[result] = Value(result, like.shape, dtype or like.dtype)
        name = op.name if out else unused(f"{op.name}/{kind.lower()}", self.names)
        self.ops.append(Op(name, kind, inputs, (result,), attributes or {}))
        return result

    def finish(self) -> Graph:
        """The graph with the new ops in place of its own."""
        graph = self.graph
        return replace(
            graph,
            ops=tuple(self.ops),
            values={**graph.values, **self.values},
            constants={**graph.constants, **{key: Constant(item) for key, item in self.constants.items()}},
        )


def draft_of(graph: Graph) -> Draft:
    """Start with no ops, on a graph whose names are all taken."""
    return Draft(graph, set(graph.values), names={op.name for op in graph.ops})


def lower(graph: Graph) -> Graph:
    """Replace each QONNX op whose parameters are constants by plain ones; the rest stays as it is."""
    draft = draft_of(graph)
    for op in graph.ops:
        if op.type in EVALUATORS and op.outputs[0] not in graph.outputs:
            arrays = [draft.array(name) for name in op.inputs]
            if all(array is not None for array in arrays):
                draft.set_constant(op.outputs[0], evaluate(op, [np.asarray(array) for array in arrays]))
                continue
        rule = LOWERINGS.get(op.type)
        if rule is None or not rule(op, draft):
            draft.ops.append(op)
    return draft.finish()


def evaluate(op: Op, operands: list[Array]) -> Array:
    """Compute a QONNX op on arrays.

    Raises:
      ModelError: a rounding mode that does not exist, or operands that do not fit.
    """
    try:
        x = operands[0]
        if x.size <= _PIECE or x.ndim == 0 or op.type == MULTI_THRESHOLD:
            return EVALUATORS[op.type](op, operands)
        return _in_pieces(op, operands)
    except (ValueError, IndexError, TypeError) as error:
        raise ModelError(f"{op.type.rpartition('::')[2]} at {op.name!r}: {error}") from error


def _in_pieces(op: Op, operands: list[Array]) -> Array:
    """Evaluate an op some rows at a time, so that intermediate arrays stay in the processor's cache."""
    x, *rest = operands
    result = np.empty(x.shape, np.float32)
    step = max(1, _PIECE * x.shape[0] // x.size)
    for begin in range(0, x.shape[0], step):
        rows = slice(begin, begin + step)
        parts = [array[rows] if array.ndim == x.ndim and array.shape[0] > 1 else array for array in rest]
        result[rows] = EVALUATORS[op.type](op, [x[rows], *parts])
    return result


def checked_rounding(op: Op) -> str:
    """The rounding mode of an op.

    Raises:
      ModelError: none of QONNX's modes.
    """
    mode = rounding_of(op)
    if mode not in ROUNDINGS:
        known = ", ".join(sorted(ROUNDINGS))
        raise ModelError(f"{op.name!r} has the rounding mode {mode!r}", hint=f"QONNX has {known}")
    return mode


def emit_rounding(op: Op, draft: Draft, v: str, mode: str, dtype: np.dtype[Any]) -> str:
    """Append the ops that round a tensor."""
    if mode in _PLAIN_ROUNDINGS:
        return draft.emit(op, _PLAIN_ROUNDINGS[mode], v)
    sign, size = draft.emit(op, "Sign", v), draft.emit(op, "Abs", v)
    if mode.startswith("HALF"):
        half = draft.constant(f"{op.outputs[0]}/half", np.asarray(0.5, dtype))
        size = draft.emit(op, "Add" if mode == "HALF_UP" else "Sub", size, half)
    cut = draft.emit(op, "Floor" if mode in ("DOWN", "ROUND_TO_ZERO", "HALF_UP") else "Ceil", size)
    return draft.emit(op, "Mul", sign, cut)


def _quant(op: Op, draft: Draft) -> bool:
    scale, zero, bits = (_operand(op, draft, i) for i in (1, 2, 3))
    if isinstance(bits, str) or scale is None or zero is None or bits is None:
        return False
    signed, narrow = bool(op.attributes["signed"]), bool(op.attributes["narrow"])
    mode = checked_rounding(op)
    if isinstance(zero, np.ndarray) and not zero.any():
        # An integer zero widens nothing: the steps are the same numbers in float32.
        zero = np.zeros(zero.shape, np.float32)
    v, dtype = _offset(op, draft, scale, zero)
    if signed and np.any(bits == 1):
        if not np.all(bits == 1):
            return False
        q = _signs(op, draft, v, dtype)
    else:
        low, high = bounds(bits, signed=signed, narrow=narrow)
        q = emit_rounding(op, draft, _clip(op, draft, v, low.astype(dtype), high.astype(dtype)), mode, dtype)
    _back(op, draft, q, zero, scale, dtype=dtype)
    return True


def _operand(op: Op, draft: Draft, index: int) -> Operand | None:
    """A parameter: its numbers, or the name of a float32 tensor computed at run time."""
    array = draft.array(op.inputs[index])
    if array is not None:
        return array
    return op.inputs[index] if draft.graph.values[op.inputs[index]].dtype == "f32" else None


def _dtype(operand: Operand) -> np.dtype[Any]:
    return _F32 if isinstance(operand, str) else operand.dtype


def _is_all(operand: Operand, number: float) -> bool:
    return not isinstance(operand, str) and bool(np.all(operand == number))


def _offset(op: Op, draft: Draft, scale: Operand, zero: Operand) -> tuple[str, np.dtype[Any]]:
    """`x / scale + zero_point`, in the element types numpy would take."""
    start = _real(op, draft)
    divided = np.result_type(start, _dtype(scale))
    x = _as(op, draft, op.inputs[0], start, divided)
    v = x if _is_all(scale, 1) else _step(op, draft, "Div", x, scale, dtype=divided)
    dtype = np.result_type(divided, _dtype(zero))
    return _step(op, draft, "Add", _as(op, draft, v, divided, dtype), zero, dtype=dtype), dtype


def _real(op: Op, draft: Draft) -> np.dtype[Any]:
    """The element type of the tensor; where it is not known it is float32."""
    known = draft.graph.values[op.inputs[0]].dtype
    return NUMPY[known] if known in ("f16", "f64") else _F32


def _back(op: Op, draft: Draft, q: str, zero: Operand, scale: Operand, *, dtype: np.dtype[Any]) -> None:
    """`(q - zero_point) * scale` in float32."""
    shifted = q if _is_all(zero, 0) else _step(op, draft, "Sub", q, zero, dtype=dtype)
    if _is_all(scale, 1):
        _finish(op, draft, _as(op, draft, shifted, dtype, _F32))
        return
    wide = np.result_type(dtype, _dtype(scale))
    scaled = _step(op, draft, "Mul", _as(op, draft, shifted, dtype, wide), scale, dtype=wide)
    _finish(op, draft, _as(op, draft, scaled, wide, _F32))


def _finish(op: Op, draft: Draft, source: str) -> None:
    """Let the last step write the op's result, in its own element type."""
    source = _as(op, draft, source, _F32, _real(op, draft))
    if draft.ops and draft.ops[-1].outputs == (source,):
        draft.ops[-1] = replace(draft.ops[-1], name=op.name, outputs=op.outputs[:1])
        draft.values.pop(source, None)
    else:
        draft.emit(op, "Identity", source, out=op.outputs[0])


def _step(op: Op, draft: Draft, kind: str, x: str, operand: Operand, *, dtype: np.dtype[Any]) -> str:
    if isinstance(operand, str):
        name = _as(op, draft, operand, _F32, dtype)
    else:
        name = draft.constant(f"{op.outputs[0]}/{kind.lower()}_operand", operand.astype(dtype))
    return draft.emit(op, kind, x, name, dtype=dtype_of(np.empty(0, dtype)))


def _as(op: Op, draft: Draft, x: str, have: np.dtype[Any], wanted: np.dtype[Any]) -> str:
    if have == wanted:
        return x
    name = dtype_of(np.empty(0, wanted))
    return draft.emit(op, "Cast", x, dtype=name, attributes={"to": enum_of(name)})


def _clip(op: Op, draft: Draft, v: str, low: Array, high: Array) -> str:
    if low.size == high.size == 1:
        ends = [draft.constant(f"{op.outputs[0]}/end", end.reshape(())) for end in (low, high)]
        return draft.emit(op, "Clip", v, *ends)
    below = draft.emit(op, "Min", v, draft.constant(f"{op.outputs[0]}/high", high))
    return draft.emit(op, "Max", below, draft.constant(f"{op.outputs[0]}/low", low))


def _signs(op: Op, draft: Draft, v: str, dtype: np.dtype[Any]) -> str:
    zero, one, minus = (
        draft.constant(f"{op.outputs[0]}/{name}", np.asarray(number, dtype))
        for name, number in (("zero", 0), ("one", 1), ("minus_one", -1))
    )
    is_positive = draft.emit(op, "GreaterOrEqual", v, zero, dtype="bool")
    return draft.emit(op, "Where", is_positive, one, minus)


def _bipolar(op: Op, draft: Draft) -> bool:
    scale = draft.array(op.inputs[1])
    if scale is None or scale.dtype != _F32:
        return False
    zero = draft.constant(f"{op.outputs[0]}/zero", np.asarray(0, _F32))
    ends = [draft.constant(f"{op.outputs[0]}/{name}", s) for name, s in (("plus", scale), ("minus", -scale))]
    x = _as(op, draft, op.inputs[0], _real(op, draft), _F32)
    is_positive = draft.emit(op, "GreaterOrEqual", x, zero, dtype="bool")
    _finish(op, draft, draft.emit(op, "Where", is_positive, *ends, dtype="f32"))
    return True


def _trunc(op: Op, draft: Draft) -> bool:
    arrays = [draft.array(name) for name in op.inputs[1:]]
    if any(array is None or array.dtype != _F32 for array in arrays):
        return False
    mode = checked_rounding(op)
    scale, zero, bits, *others = (np.asarray(array) for array in arrays)
    v, dtype = _offset(op, draft, scale, zero)
    v = draft.emit(op, "Round", v)
    if len(others) == 1:
        v = _step(op, draft, "Div", v, np.asarray(2.0 ** (bits - others[0])), dtype=dtype)
        _back(op, draft, emit_rounding(op, draft, v, mode, dtype), zero, scale, dtype=dtype)
        return True
    scale_out, bits_out = others
    with np.errstate(over="ignore"):  # of scales next to 0
        ratio = np.asarray(2 ** np.rint(np.log2(scale_out / scale)))
    if not np.isfinite(ratio).all():
        raise ModelError(f"Trunc at {op.name!r}: its scales are further apart than float32 numbers are")
    v = _step(op, draft, "Div", v, ratio, dtype=dtype)
    low, high = bounds(bits_out, signed=bool(op.attributes["signed"]), narrow=bool(op.attributes["narrow"]))
    q = emit_rounding(op, draft, _clip(op, draft, v, low.astype(dtype), high.astype(dtype)), mode, dtype)
    _back(op, draft, q, np.asarray(zero / ratio), scale_out, dtype=dtype)
    return True


def _multi_threshold(op: Op, draft: Draft) -> bool:
    thresholds, shape = draft.array(op.inputs[1]), draft.graph.values[op.inputs[0]].shape
    if thresholds is None or shape is None or thresholds.shape[1] > MOST_THRESHOLDS:
        return False
    layout = op.attributes["data_layout"] or _LAYOUTS.get(len(shape), "")
    axis = layout.index("C") if "C" in layout else 1
    spread = [1] * len(shape)
    if thresholds.shape[0] != 1:
        spread[axis] = -1
    total, real = "", np.result_type(_real(op, draft), thresholds.dtype)
    x = _as(op, draft, op.inputs[0], _real(op, draft), real)
    for k in range(thresholds.shape[1]):
        reached = thresholds[:, k].astype(real).reshape(spread)
        step = draft.constant(f"{op.outputs[0]}/threshold_{k}", reached)
        is_reached = draft.emit(op, "GreaterOrEqual", x, step, dtype="bool")
        one = draft.emit(op, "Cast", is_reached, dtype="f32", attributes={"to": enum_of("f32")})
        total = draft.emit(op, "Add", total, one) if total else one
    scale, bias = (np.asarray(op.attributes[key], np.float32) for key in ("out_scale", "out_bias"))
    scaled = _step(op, draft, "Mul", total, scale, dtype=_F32)
    _finish(op, draft, _step(op, draft, "Add", scaled, bias, dtype=_F32))
    return True


def _evaluate_quant(op: Op, operands: list[Array]) -> Array:
    signed, narrow = bool(op.attributes["signed"]), bool(op.attributes["narrow"])
    return quant(*operands, signed=signed, narrow=narrow, rounding=checked_rounding(op))


def _evaluate_trunc(op: Op, operands: list[Array]) -> Array:
    mode = checked_rounding(op)
    if len(operands) == 5:
        return trunc(*operands, rounding=mode)
    x, scale, zero, _, scale_out, bits_out = operands
    signed, narrow = bool(op.attributes["signed"]), bool(op.attributes["narrow"])
    return trunc_scaled(x, scale, zero, scale_out, bits_out, signed=signed, narrow=narrow, rounding=mode)


def _evaluate_float(op: Op, operands: list[Array]) -> Array:
    return float_quant(
        *operands,
        rounding=checked_rounding(op),
        has_inf=bool(op.attributes["has_inf"]),
        has_nan=bool(op.attributes["has_nan"]),
        saturation=bool(op.attributes["saturation"]),
    )


def _evaluate_thresholds(op: Op, operands: list[Array]) -> Array:
    x, thresholds = operands
    layout = op.attributes["data_layout"] or _LAYOUTS.get(x.ndim, "")
    axis = layout.index("C") if "C" in layout else 1
    scale, bias = op.attributes["out_scale"], op.attributes["out_bias"]
    return multi_threshold(x, thresholds, scale=scale, bias=bias, axis=axis)


Lowering: TypeAlias = Callable[[Op, Draft], bool]
Evaluator: TypeAlias = Callable[[Op, list[Array]], Array]

_PLAIN_ROUNDINGS: Final[Mapping[str, str]] = {
    "CEIL": "Ceil",
    "FLOOR": "Floor",
    "HALF_EVEN": "Round",
    "ROUND": "Round",
}

LOWERINGS: Final[Mapping[str, Lowering]] = {
    BIPOLAR: _bipolar,
    MULTI_THRESHOLD: _multi_threshold,
    QUANT: _quant,
    TRUNC: _trunc,
}

EVALUATORS: Final[Mapping[str, Evaluator]] = {
    BIPOLAR: lambda op, operands: bipolar(*operands),  # noqa: ARG005 - one signature for all
    FLOAT_QUANT: _evaluate_float,
    MULTI_THRESHOLD: _evaluate_thresholds,
    QUANT: _evaluate_quant,
    TRUNC: _evaluate_trunc,
}
