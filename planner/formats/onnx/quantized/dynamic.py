"""Dynamic: integer products, and scales computed at run time, as float ops on the values behind them.

A product of stored integers becomes the product of the reals, over the scale; where the model multiplies by
that scale again, nothing is left of it. A value that was quantized by run-time parameters requires their
width. Only for planning: sums are rounded elsewhere than in the file.
Source: ONNX DynamicQuantizeLinear, MatMulInteger.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from onnx import TensorProto

from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.formats.onnx.quantized.quantizers import Reader, reader_of
from planner.ir.graph import Graph, Op, Value
from planner.ir.types.qtypes import AnyType, storage
from planner.ops import defined

_PRODUCTS: Final[Mapping[str, str]] = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
_DYNAMIC: Final = "DynamicQuantizeLinear"


def multiplies_at_run_time(written: Graph) -> bool:
    """Whether a model as its file has it multiplies integers that it quantizes at run time, and no floats."""
    ops = tuple(written.all_ops())
    products = [op for op in ops if op.type in _PRODUCTS]
    floats = [op for op in ops if op.type not in _PRODUCTS and defined(op.type).macs is not None]
    return bool(products) and not floats and any(op.type == _DYNAMIC for op in ops)


@dataclass(frozen=True, slots=True)
class _Work:
    """The graph, and for values that stand for integer products: the float product and the run-time scale."""

    reader: Reader
    draft: Draft
    products: dict[str, tuple[str, str]] = field(default_factory=dict)

    def users(self, name: str) -> list[Op]:
        return [op for op in self.reader.graph.ops if name in op.inputs]


def plain_products(graph: Graph) -> Graph:
    """Rewrite integer products and dynamic pairs; the same graph if there is none."""
    if not any(op.type in _PRODUCTS or op.type == _DYNAMIC for op in graph.ops):
        return graph
    work = _Work(reader_of(graph), draft_of(graph))
    for op in graph.ops:
        if not (_product(op, work) or _pair(op, work) or _scaled_back(op, work)):
            work.draft.ops.append(op)
    done = work.draft.finish()
    needed = {name for op in done.ops for name in (*op.inputs, *op.captures)} | set(done.outputs)
    return replace(done, ops=tuple(op for op in done.ops if op.type != _DYNAMIC or needed & set(op.outputs)))


def _product(op: Op, work: _Work) -> bool:
    kind = _PRODUCTS.get(op.type)
    casts = work.users(op.outputs[0])
    if kind is None or not casts or op.outputs[0] in work.reader.graph.outputs:
        return False
    if any(user.type != "Cast" or user.attributes.get("to") != TensorProto.FLOAT for user in casts):
        return False
    made = work.reader.op(op.inputs[0], _DYNAMIC, "QuantizeLinear")
    if made is None:
        return False
    zeros = (*op.inputs[2:4], "", "")[:2]
    if made[1].type == _DYNAMIC:
        return _dynamic_product(op, made[1], zeros, casts, work)
    scale = work.reader.array(made[1].inputs[1])
    # sum (q - z)(p - y) is the product of reals over the scale only for the zero point that q was made with.
    same_zero = zeros[0] == (*made[1].inputs, "")[2]
    if scale is None or scale.size != 1 or not same_zero:
        return False
    a = _real(op, work, op.inputs[0], made[1].inputs[1], zeros[0])
    real = _multiply(op, work, kind, a, zeros[1])
    work.draft.emit(op, "Div", real, made[1].inputs[1], out=op.outputs[0])
    _as_float(work, op.outputs[0])
    return True


def _dynamic_product(op: Op, made: Op, zeros: tuple[str, ...], casts: list[Op], work: _Work) -> bool:
    scale = made.outputs[1]
    scaled = [user for cast in casts for user in work.users(cast.outputs[0])]
    if (
        zeros[0] != made.outputs[2]
        or not scaled
        or any(_factor(user, scale, work) is None for user in scaled)
    ):
        return False
    real = _multiply(op, work, _PRODUCTS[op.type], made.inputs[0], zeros[1])
    for cast in casts:
        work.products[cast.outputs[0]] = (real, scale)
    work.draft.emit(op, "Identity", real, out=op.outputs[0])
    _as_float(work, op.outputs[0])
    _ask_for_width(work, made)
    return True


def _factor(user: Op, scale: str, work: _Work) -> str | None:
    """The other factor of a Mul by a scale: a name, "" for none; None where it is no such Mul."""
    if user.type != "Mul":
        return None
    for other in user.inputs:
        if other == scale:
            return ""
        product = work.reader.op(other, "Mul")
        if product is not None and scale in product[1].inputs:
            left, right = product[1].inputs
            return right if left == scale else left
    return None


def _scaled_back(op: Op, work: _Work) -> bool:
    known = next((work.products[name] for name in op.inputs if name in work.products), None)
    if known is None or op.type != "Mul":
        return False
    real, scale = known
    factor = _factor(op, scale, work)
    if factor:
        work.draft.emit(op, "Mul", real, factor, out=op.outputs[0])
    else:
        work.draft.emit(op, "Identity", real, out=op.outputs[0])
    return True


def _pair(op: Op, work: _Work) -> bool:
    """DequantizeLinear of all that one DynamicQuantizeLinear gives."""
    made = work.reader.op(op.inputs[0], _DYNAMIC) if op.type == "DequantizeLinear" else None
    if made is None or op.inputs != made[1].outputs:
        return False
    _ask_for_width(work, made[1])
    work.draft.emit(op, "Identity", made[1].inputs[0], out=op.outputs[0])
    return True


def _multiply(op: Op, work: _Work, kind: str, a: str, weight_zero: str) -> str:
    zero = work.reader.array(weight_zero) if weight_zero else None
    many = zero is not None and zero.size > 1
    # Weights at scale 1: their integers less the zero point are the reals, the scale stays in the Mul behind.
    units = np.ones(zero.size if many and zero is not None else (), np.float32)
    unit = work.draft.constant(f"{op.outputs[0]}/unit", units)
    axis = (0 if kind == "Conv" else -1) if many else None
    weight = _real(op, work, op.inputs[1], unit, weight_zero, axis=axis)
    return work.draft.emit(op, kind, a, weight, dtype="f32", attributes=op.attributes)


def _real(op: Op, work: _Work, tensor: str, scale: str, zero: str, *, axis: int | None = None) -> str:
    inputs = (tensor, scale, zero) if zero else (tensor, scale)
    attributes = {} if axis is None else {"axis": axis}
    real = work.draft.emit(op, "DequantizeLinear", *inputs, dtype="f32", attributes=attributes)
    work.draft.values[real] = Value(real, work.reader.graph.values[tensor].shape, "f32")
    return real


def _as_float(work: _Work, name: str) -> None:
    work.draft.values[name] = replace(work.reader.graph.values[name], dtype="f32")


def _ask_for_width(work: _Work, made: Op) -> None:
    name = made.inputs[0]
    value = work.draft.values.get(name, work.reader.graph.values[name])
    work.draft.values[name] = replace(value, facts=(AnyType(storage("u8")),))
