"""Operators: products of quantized operands as operators on stored integers, where the numbers are the same.

A float sum rounds, an integer sum does not: both are one number only where every scale is a power of two and
every sum stays below 2^24, so that float32 is exact. Elsewhere a plan says how a device rounds, and the
conversion is refused. In: pairs, as `pairs` writes them. Source: ONNX operator pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.onnx.dtypes import enum_of
from planner.formats.onnx.naming import use_counts
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.formats.onnx.quantized.quantizers import Reader, find_quantizers, reader_of
from planner.ir.graph import Graph, Op

_EXACT: Final = 1 << 24
_BYTES: Final = frozenset({"i8", "u8"})
_INTEGER: Final = {"Conv": "ConvInteger", "MatMul": "MatMulInteger"}
_QLINEAR: Final = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul"}


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """An operand behind a DequantizeLinear: its tensor and the names and numbers of its parameters."""

    tensor: str
    names: tuple[str, str]
    scale: Array
    zero: Array
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """A product of two stored operands that float32 computes exactly."""

    op: Op
    x: _Stored
    w: _Stored
    bias: Array | None

    @property
    def step(self) -> Array:
        """The real value of one step of a sum, per output channel or one for all."""
        return np.asarray(self.x.scale * self.w.scale, np.float32)


def integer_products(graph: Graph) -> Graph:
    """Every product of quantized operands as ConvInteger or MatMulInteger, a Cast and one multiplication.

    Raises:
      UnsupportedExport: float sums that are not exact; names the op and why.
    """
    reader, draft = reader_of(graph), draft_of(graph)
    results = {found.result for found in find_quantizers(graph)}
    for op in graph.ops:
        product = _product(op, reader, results, "onnx-integer")
        if product is None:
            draft.ops.append(op)
        else:
            _write_integer(product, draft)
    return _with_some(draft, results, _INTEGER, "onnx-integer")


def qlinear_products(graph: Graph) -> Graph:
    """Every product of quantized operands with a quantized result as QLinearConv or QLinearMatMul.

    Raises:
      UnsupportedExport: float sums that are not exact, or element types that do not fit each other.
    """
    reader, draft, counts = reader_of(graph), draft_of(graph), use_counts(graph)
    results = {found.result for found in find_quantizers(graph)}
    for op in graph.ops:
        made = reader.op(op.inputs[0], *_QLINEAR, "Relu") if op.type == "QuantizeLinear" else None
        first = made[1] if made is not None and counts[op.inputs[0]] == 1 else None
        if first is not None and first.type == "Relu":
            inner = reader.op(first.inputs[0], *_QLINEAR)
            is_cut = _is_cut_at_zero(op, reader) and counts[first.inputs[0]] == 1
            first = inner[1] if inner is not None and is_cut else None
        product = None if first is None else _product(first, reader, results, "onnx-qoperator")
        if product is None or not _has_one_power(op, reader):
            draft.ops.append(op)
        else:
            _write_qlinear(product, op, draft)
    return _with_some(draft, results, _QLINEAR, "onnx-qoperator")


def _with_some(draft: Draft, results: set[str], made: Mapping[str, str], form: str) -> Graph:
    """The graph, if it has become one of the dialect.

    Raises:
      UnsupportedExport: no product has; names the first one and why.
    """
    if any(op.type in made.values() for op in draft.ops):
        return draft.finish()
    graph = draft.graph
    first = next((op for op in graph.ops if op.type in (*made, "Gemm")), None)
    if first is None:
        raise UnsupportedExport(
            f"{form} cannot say model {graph.name!r}: it has no {' or '.join(made)}",
            hint="onnx-qcdq says every quantizer by itself",
        )
    makers = {out: op.type for op in graph.ops for out in op.outputs}
    loose = next((name for name in first.inputs[:2] if name not in results), None)
    if first.type not in made:
        raise _refusal(first, form, "no operator on stored integers is a Gemm", " and ".join(made))
    if loose is not None:
        maker = makers.get(loose, "an input" if loose in graph.inputs else "a constant")
        why = f"its operand {loose!r} is given by {maker} and not by a quantizer"
        raise _refusal(first, form, why, "products of two quantized operands")
    why = "its result is not quantized right behind it, by one power of two"
    raise _refusal(first, form, why, "products whose results are quantized so")


def _product(op: Op, reader: Reader, results: set[str], form: str) -> _Product | None:
    """The product an op computes; None where its operands are not both quantized."""
    if op.type not in _INTEGER or not results.issuperset(op.inputs[:2]):
        return None
    x, w = (_stored(name, op, reader, form) for name in op.inputs[:2])
    if x.scale.size > 1 or x.zero.size > 1:
        raise _refusal(op, form, "its first operand has a scale per channel", "one scale there")
    if w.zero.size > 1 and not np.all(w.zero == w.zero.reshape(-1)[0]):
        raise _refusal(op, form, "its weights have zero points of their own per channel", "one for all")
    for side in (x, w):
        if not np.all(np.frexp(side.scale)[0] == 0.5):
            scale = float(side.scale.reshape(-1)[0])
            raise _refusal(
                op,
                form,
                f"its scale {scale:.6g} is no power of two: float sums are rounded, integer ones are not",
                "scales that are powers of two",
            )
    product = _Product(op, x, w, _bias(op, x, w, reader, form))
    if _largest_sum(product, reader) >= _EXACT:
        raise _refusal(op, form, "its sums may pass 2^24, where float32 rounds", "smaller sums")
    return product


def _stored(name: str, op: Op, reader: Reader, form: str) -> _Stored:
    found = reader.op(name, "DequantizeLinear")
    dtype = "" if found is None else reader.graph.values[found[1].inputs[0]].dtype
    if found is None or dtype not in _BYTES:
        raise _refusal(
            op, form, f"its operand {name!r} is stored in no byte", "i8 or u8 with a zero point in it"
        )
    tensor, *parameters = found[1].inputs
    scale, zero = (np.asarray(reader.array(item)) for item in parameters)
    return _Stored(tensor, (parameters[0], parameters[1]), scale, zero, dtype)


def _bias(op: Op, x: _Stored, w: _Stored, reader: Reader, form: str) -> Array | None:
    """The bias of a Conv in steps of its sums."""
    if len(op.inputs) < 3 or not op.inputs[2]:
        return None
    array = reader.array(op.inputs[2])
    if array is None:
        found = [item for item in find_quantizers(reader.graph) if item.result == op.inputs[2]]
        known = found[0] if found else None
        if known is not None and known.data is not None:
            array = (known.data - known.quantizer.zero_point) * known.quantizer.scale
    steps = None if array is None else array.astype(np.float64) / (x.scale * w.scale)
    # An integer bias is added before the scale is applied, so it has to be whole steps of the sum.
    if steps is None or not np.array_equal(steps, np.rint(steps)) or np.abs(steps).max(initial=0) >= _EXACT:
        raise _refusal(
            op, form, "its bias lies off the grid of its sums", "multiples of the product of the scales"
        )
    return np.asarray(steps, np.int32)


def _largest_sum(product: _Product, reader: Reader) -> float:
    """A bound of every partial sum, in steps."""
    far = (
        max(255 - int(product.x.zero.min()), int(product.x.zero.max()))
        if product.x.dtype == "u8"
        else (128 + abs(int(product.x.zero.reshape(-1)[0])))
    )
    w = _numbers(product.w.tensor, reader)
    if w is None:
        shape = reader.graph.values[product.w.tensor].shape or ()
        depth = shape[-2] if len(shape) > 1 else None
        return float(depth) * far * 383 if isinstance(depth, int) else float(_EXACT)
    # Sum |w| times the farthest x bounds every partial sum, in whatever order a kernel adds.
    size = np.abs(w.astype(np.int64) - int(product.w.zero.reshape(-1)[0]))
    axes = tuple(range(1, w.ndim)) if product.op.type == "Conv" else (w.ndim - 2,)
    extra = 0 if product.bias is None else np.abs(product.bias.astype(np.int64)).max(initial=0)
    return float(size.sum(axis=axes).max(initial=0) * far + extra)


def _numbers(name: str, reader: Reader) -> Array | None:
    """Stored weights, behind a Clip or not."""
    made = reader.op(name, "Clip")
    stored: Array | None = reader.array(name if made is None else made[1].inputs[0])
    return stored


def _spread(steps: Array, product: _Product, reader: Draft) -> Array:
    """Numbers per output channel so that they broadcast against the result."""
    if steps.size == 1:
        return steps.reshape(())
    shape = reader.graph.values[product.w.tensor].shape or ()
    return steps.reshape(-1, *[1] * (len(shape) - 2)) if product.op.type == "Conv" else steps.reshape(-1)


def _write_integer(product: _Product, draft: Draft) -> None:
    op = product.op
    zeros = product.x.names[1], _one_zero(product, draft)
    total = draft.emit(
        op,
        _INTEGER[op.type],
        product.x.tensor,
        product.w.tensor,
        *zeros,
        dtype="i32",
        attributes=op.attributes,
    )
    if product.bias is not None:
        bias = draft.constant(f"{op.outputs[0]}/bias", _spread(product.bias, product, draft))
        total = draft.emit(op, "Add", total, bias, dtype="i32")
    real = draft.emit(op, "Cast", total, dtype="f32", attributes={"to": enum_of("f32")})
    step = draft.constant(f"{op.outputs[0]}/step", _spread(product.step, product, draft))
    draft.emit(op, "Mul", real, step, out=op.outputs[0])


def _one_zero(product: _Product, draft: Draft) -> str:
    """The weight's zero point as a scalar."""
    zero = product.w.zero
    return draft.constant(f"{product.op.outputs[0]}/weight_zero", zero.reshape(-1)[0].reshape(()))


def _write_qlinear(product: _Product, quantize: Op, draft: Draft) -> None:
    op, x, w = product.op, product.x, product.w
    dtype = draft.graph.values[quantize.outputs[0]].dtype
    if dtype != x.dtype or (x.dtype == "i8" and w.dtype == "u8"):
        raise _refusal(
            op,
            "onnx-qoperator",
            f"it reads {x.dtype} and {w.dtype} and gives {dtype}, which no kernel does",
            "one storage for its first operand and its result, and weights of i8",
        )
    names: list[str] = [x.tensor, *x.names, w.tensor, *w.names, *quantize.inputs[1:3]]
    if product.bias is not None:
        names.append(draft.constant(f"{op.outputs[0]}/bias", product.bias.reshape(-1)))
    attributes: dict[str, Any] = dict(op.attributes)
    draft.emit(quantize, _QLINEAR[op.type], *names, out=quantize.outputs[0], attributes=attributes)


def _has_one_power(quantize: Op, reader: Reader) -> bool:
    scale = reader.array(quantize.inputs[1])
    return scale is not None and scale.size == 1 and bool(np.all(np.frexp(scale)[0] == 0.5))


def _is_cut_at_zero(quantize: Op, reader: Reader) -> bool:
    """Whether nothing below 0 is stored, so that a Relu in front does nothing."""
    zero = reader.array(quantize.inputs[2]) if len(quantize.inputs) > 2 else None
    return zero is not None and bool(np.all(zero == np.iinfo(zero.dtype).min))


def _refusal(op: Op, form: str, why: str, accepted: str) -> UnsupportedExport:
    return UnsupportedExport(
        f"{form} cannot say {op.type} at {op.name!r} (port {op.name}.out[0]) with the same numbers: {why}",
        hint=f"{form} takes {accepted}; or plan for a target, which says how to round (--format {form})",
    )
