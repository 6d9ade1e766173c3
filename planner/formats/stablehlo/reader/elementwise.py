"""Element-wise StableHLO ops as ONNX's, which broadcast by themselves.

`maximum` with 0 is Relu, `minimum` of a Relu with a number a Clip, `clamp` with numbers a Clip; a sum over
axes divided by how many it sums is a mean. Source: StableHLO specification; ONNX operators, opset 21.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from xdsl.ir import Operation

from planner.formats.mlir.stablehlo_ops import items_of, name_of
from planner.formats.onnx.dtypes import enum_of
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.formats.stablehlo.vocabulary import COMPARISONS, LOGIC, OPERATIONS
from planner.ir.graph import Op
from planner.ir.types.qtypes import NoneType

_OTHERS: Final = (*COMPARISONS, *LOGIC, "Not")
DIRECT: Final[Mapping[str, str]] = {
    "chlo.erf": "Erf",
    **{f"stablehlo.{name}": ours for ours, name in OPERATIONS.items() if ours not in _OTHERS},
}
_LOGIC: Final = {f"stablehlo.{OPERATIONS[ours]}": ours for ours in (*LOGIC, "Not")}
_COMPARED: Final = {direction: ours for ours, direction in COMPARISONS.items()}
_CAST: Final = frozenset(
    {"bf16", "bool", "f16", "f32", "f64", "i16", "i32", "i64", "i8", "u16", "u32", "u64", "u8"}
)
"""Element types that ONNX's Cast is read for."""
_NO_F32: Final = "it is read for f32 of known shape"
Reader = Callable[[GraphBuilder, Operation], str]
"""Adds ops to a draft; gives "" or why it did not."""


def elementwise(draft: GraphBuilder, op: Operation, kind: str | None = None) -> str:
    """Read an op that has a namesake in ONNX."""
    names = [draft.loose(value) for value in op.operands]
    result = op.results[0]
    shape = tuple(result.type.get_shape())  # type: ignore[attr-defined]
    if not _covers(draft, names, shape):
        names[0] = draft.name(op.operands[0])
    kind = kind or DIRECT[name_of(op)]
    names = [draft.reshaped(name, _short(draft, name)) if len(names) > 1 else name for name in names]
    draft.result(kind, names, result)
    return ""


def _covers(draft: GraphBuilder, names: list[str], shape: tuple[int, ...]) -> bool:
    """Whether operands broadcast to the result's shape without being expanded."""
    shapes = [draft.shape(name) for name in names]
    if any(known is None for known in shapes):
        return True
    return np.broadcast_shapes(*[known for known in shapes if known is not None]) == shape


def _short(draft: GraphBuilder, name: str) -> tuple[int, ...]:
    """The shape of a constant without leading ones; the shape of any other value."""
    shape = draft.shape(name) or ()
    if draft.array(name) is None:
        return shape
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape if shape != (1,) else ()


def logic(draft: GraphBuilder, op: Operation) -> str:
    """Read an op on truth values."""
    if any(draft.read.values[draft.loose(value)].dtype != "bool" for value in op.operands):
        return "ONNX has it for truth values only"
    return elementwise(draft, op, _LOGIC[name_of(op)])


def maximum(draft: GraphBuilder, op: Operation) -> str:
    """Read a maximum: with 0 it is Relu."""
    for one, other in ((0, 1), (1, 0)):
        bound = draft.number(draft.loose(op.operands[other]))
        if bound == 0 and draft.read.values[draft.loose(op.operands[one])].is_float:
            draft.result("Relu", [draft.name(op.operands[one])], op.results[0])
            return ""
        if bound == -np.inf:
            draft.alias(op.results[0], draft.name(op.operands[one]))
            return ""
    return elementwise(draft, op)


def minimum(draft: GraphBuilder, op: Operation) -> str:
    """Read a minimum: of a Relu and a number it is a Clip."""
    for one, other in ((0, 1), (1, 0)):
        bound = draft.number(draft.loose(op.operands[other]))
        name = draft.loose(op.operands[one])
        relu = draft.producer(name, "Relu")
        if bound is None or relu is None or not _is_single(op, one) or draft.read.stated.get(name):
            continue
        if draft.read.values[name].dtype != "f32":
            continue
        ends = [draft.constant(np.array(end, np.float32)) for end in (0, bound)]
        draft.result("Clip", [relu.inputs[0], *ends], op.results[0])
        return ""
    return elementwise(draft, op)


def _is_single(op: Operation, operand: int) -> bool:
    return len(list(op.operands[operand].uses)) == 1


def clamp(draft: GraphBuilder, op: Operation) -> str:
    """Read a clamp between numbers as Clip, between tensors as Max and Min."""
    low, value, high = (draft.loose(operand) for operand in op.operands)
    ends = [draft.number(name) for name in (low, high)]
    if None in ends:
        shape = draft.shape(value)
        if shape is None:
            return "its shape is not known"
        draft.result("Min", [draft.between("Max", [value, low], shape), high], op.results[0])
        return ""
    scalars = []
    for name in (low, high):
        array = draft.array(name)
        assert array is not None  # noqa: S101 - it has one number
        scalars.append(draft.constant(array.reshape(-1)[0].reshape(())))
    draft.result("Clip", [draft.name(op.operands[1]), *scalars], op.results[0])
    return ""


def compare(draft: GraphBuilder, op: Operation) -> str:
    """Read a comparison; `NE` is Not of Equal."""
    items = items_of(op)
    if "TOTALORDER" in str(items.get("compare_type", "")):
        return "ONNX does not order NaN and signed zeros"
    text = str(items.get("comparison_direction"))
    direction = next((name for name in (*_COMPARED, "NE") if f" {name}>" in text or text.endswith(name)), "")
    if direction != "NE":
        return elementwise(draft, op, _COMPARED[direction])
    names = [draft.loose(value) for value in op.operands]
    shape = tuple(op.results[0].type.get_shape())  # type: ignore[attr-defined]
    equal = draft.between("Equal", names, shape)
    draft.read.values[equal] = replace(draft.read.values[equal], dtype="bool")
    draft.result("Not", [equal], op.results[0])
    return ""


def convert(draft: GraphBuilder, op: Operation) -> str:
    """Read a conversion as Cast; from reals to integers both truncate."""
    kind = str(getattr(op.results[0].type, "element_type", ""))
    ours = {"i1": "bool"}.get(kind, kind.replace("ui", "u"))
    if ours not in _CAST:
        return f"ONNX has no element type {kind}"
    draft.result("Cast", [draft.name(op.operands[0])], op.results[0], {"to": enum_of(ours)})
    return ""


def rsqrt(draft: GraphBuilder, op: Operation) -> str:
    """Read a reciprocal square root as two ops."""
    name = draft.name(op.operands[0])
    shape = draft.shape(name)
    if shape is None:
        return "its shape is not known"
    draft.result("Reciprocal", [draft.between("Sqrt", [name], shape)], op.results[0])
    return ""


def divide(draft: GraphBuilder, op: Operation) -> str:
    """Read a division; of a sum by the number of its terms it is a mean."""
    count = draft.number(draft.loose(op.operands[1]))
    name = draft.loose(op.operands[0])
    if count is None or draft.read.stated.get(name):
        return elementwise(draft, op)
    back = draft.producer(name, "Transpose")
    product = draft.producer(name, "Mul")
    pool = None if product is None else draft.producer(product.inputs[0], "AveragePool")
    if product is not None and pool is None:
        back = draft.producer(product.inputs[0], "Transpose")
        pool = None if back is None else draft.producer(back.inputs[0], "AveragePool")
    if product is not None and pool is not None and draft.number(product.inputs[1]) == count:
        draft.alias(op.results[0], product.inputs[0])
        return ""
    kept = draft.producer(name, "Reshape")
    total = draft.producer(name if kept is None else kept.inputs[0], "ReduceSum")
    shape = tuple(op.results[0].type.get_shape())  # type: ignore[attr-defined]
    if total is None or _terms(draft, total) != count or draft.shape(name) != shape:
        return elementwise(draft, op)
    if kept is None:
        draft.result("ReduceMean", list(total.inputs), op.results[0], total.attributes)
    else:
        sizes = draft.shape(total.outputs[0]) or ()
        mean = draft.between("ReduceMean", list(total.inputs), sizes, total.attributes)
        draft.result("Reshape", [mean, kept.inputs[1]], op.results[0])
    return ""


def _terms(draft: GraphBuilder, total: Op) -> float | None:
    """The number of elements that a sum adds up; None where it is not known."""
    shape, axes = draft.shape(total.inputs[0]), draft.array(total.inputs[1])
    if shape is None or axes is None:
        return None
    return float(np.prod([shape[axis] for axis in axes]))


def square(draft: GraphBuilder, op: Operation) -> str:
    """Read a square as a product."""
    name = draft.name(op.operands[0])
    draft.result("Mul", [name, name], op.results[0])
    return ""


def _known_f32(draft: GraphBuilder, name: str) -> tuple[int, ...] | None:
    return draft.shape(name) if draft.read.values[name].dtype == "f32" else None


def beside_one(draft: GraphBuilder, op: Operation) -> str:
    """Read `exp(x) - 1`, `log(x + 1)` and `1 - erf(x)` as two ops, equal up to the rounding of 1."""
    name = draft.name(op.operands[0])
    shape = _known_f32(draft, name)
    if shape is None:
        return _NO_F32
    one = draft.constant(np.array(1, np.float32))
    match name_of(op):
        case "stablehlo.exponential_minus_one":
            draft.result("Sub", [draft.between("Exp", [name], shape), one], op.results[0])
        case "stablehlo.log_plus_one":
            draft.result("Log", [draft.between("Add", [name, one], shape)], op.results[0])
        case _:
            draft.result("Sub", [one, draft.between("Erf", [name], shape)], op.results[0])
    return ""


def cbrt(draft: GraphBuilder, op: Operation) -> str:
    """Read a cube root as a power of the magnitude, with the sign put back."""
    name = draft.name(op.operands[0])
    shape = _known_f32(draft, name)
    if shape is None:
        return _NO_F32
    third = draft.constant(np.array(1 / 3, np.float32))
    root = draft.between("Pow", [draft.between("Abs", [name], shape), third], shape)
    draft.result("Mul", [draft.between("Sign", [name], shape), root], op.results[0])
    return ""


def round_away(draft: GraphBuilder, op: Operation) -> str:
    """Read a rounding half away from zero: the magnitude's floor, one more from a half on, and the sign."""
    name = draft.name(op.operands[0])
    shape = _known_f32(draft, name)
    if shape is None:
        return _NO_F32
    size = draft.between("Abs", [name], shape)
    floor = draft.between("Floor", [size], shape)
    # Adding a half first would round: 0.49999997 + 0.5 is 1.
    rest = draft.between("Sub", [size, floor], shape)
    half = draft.constant(np.array(0.5, np.float32))
    more = draft.between("GreaterOrEqual", [rest, half], shape, dtype="bool")
    one = draft.between("Cast", [more], shape, {"to": enum_of("f32")}, "f32")
    away = draft.between("Add", [floor, one], shape)
    draft.result("Mul", [draft.between("Sign", [name], shape), away], op.results[0])
    return ""


def custom_call(draft: GraphBuilder, op: Operation) -> str:
    """Read upstream's test for equality, which its own interpreter runs; any other call stays opaque."""
    target = items_of(op).get("call_target_name")
    if str(target).strip('"') != "check.eq" or (len(op.operands), len(op.results)) != (2, 1):
        return "no ONNX op means the same"
    names = [draft.name(value) for value in op.operands]
    shape = draft.shape(names[0])
    if shape is None:
        return "its shape is not known"
    for name in names:  # it compares reals: a constant is not to be stored for it
        if draft.array(name) is not None:
            draft.read.stated.setdefault(name, (NoneType(),))
    equal = draft.between("Equal", names, shape, dtype="bool")
    number = draft.between("Cast", [equal], shape, {"to": enum_of("i32")}, "i32")
    axes = draft.constant(np.arange(len(shape), dtype=np.int64), "axes")
    least = draft.between("ReduceMin", [number, axes], (), {"keepdims": 0}) if shape else number
    draft.result("Cast", [least], op.results[0], {"to": enum_of("bool")})
    return ""


ELEMENTS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(DIRECT, elementwise),
    **dict.fromkeys(_LOGIC, logic),
    "chlo.erfc": beside_one,
    "chlo.square": square,
    "stablehlo.cbrt": cbrt,
    "stablehlo.clamp": clamp,
    "stablehlo.compare": compare,
    "stablehlo.convert": convert,
    "stablehlo.custom_call": custom_call,
    "stablehlo.divide": divide,
    "stablehlo.exponential_minus_one": beside_one,
    "stablehlo.log_plus_one": beside_one,
    "stablehlo.maximum": maximum,
    "stablehlo.minimum": minimum,
    "stablehlo.round_nearest_afz": round_away,
    "stablehlo.rsqrt": rsqrt,
}
