"""Elementwise: operators of two tensors that broadcast, of one tensor, and along one axis.

Source: TensorFlow Lite, builtin operators.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.formats.common.layouts import Order, plain
from planner.formats.litert.vocabulary import ALONG, BINARIES, COMPARISONS, UNARIES
from planner.formats.litert.writer.calls import NONE, Call
from planner.formats.litert.writer.operations import Tensor


def binary(call: Call) -> Sequence[Tensor] | None:
    """An op of two tensors that broadcast."""
    form = BINARIES[call.op.type]
    pair = aligned(call, (0, 1))
    if any(kind is not None and not kind.is_per_tensor for kind in (call.kind(0), call.kind(1))):
        return None
    options = form.options(call.op.attributes)
    if form.fuses:
        options["FusedActivationFunction"] = call.activation
    elif call.activation != NONE:
        return None
    like = call.like(_broadcast(pair), pair[0].order, _element(call, pair))
    return [call.emit(form.operator, pair, like, form.table, options)]


def power(call: Call) -> Sequence[Tensor] | None:
    """POW; a stored square as MUL of a tensor and itself, as POW has no integer kernel."""
    if call.kind(0) is None or call.kind(1) is not None:
        elements = {call.builder.graph.values[name].dtype for name in call.op.inputs}
        # The runtime takes two operands of one type, and none of 64 bits.
        return None if len(elements) > 1 or "i64" in elements else binary(call)
    if np.any(call.builder.values.array(call.op.inputs[1]) != 2):
        return None
    x = call.tensor(0)
    like = call.like(x.shape, x.order, _element(call, (x, x)))
    return [call.emit("MUL", (x, x), like, "MulOptions", {"FusedActivationFunction": NONE})]


def compare(call: Call) -> Sequence[Tensor] | None:
    """A comparison: its result is boolean."""
    pair = aligned(call, (0, 1))
    like = call.like(_broadcast(pair), pair[0].order, "bool")
    form = COMPARISONS[call.op.type]
    return [call.emit(form.operator, pair, like, form.table, {})]


def extreme(call: Call) -> Sequence[Tensor] | None:
    """Max and Min of one tensor or more, two by two."""
    form = BINARIES[call.op.type]
    first, *rest = aligned(call, range(len(call.op.inputs)))
    for side in rest:
        like = call.like(_broadcast((first, side)), first.order, _element(call, (first, side)))
        first = call.emit(form.operator, (first, side), like, form.table, {})
    return [first]


def where(call: Call) -> Sequence[Tensor] | None:
    """SELECT_V2 by a condition."""
    found = aligned(call, (0, 1, 2))
    found[1:] = [onto(call, i, tensor) for i, tensor in enumerate(found[1:], 1)]
    like = call.like(_broadcast(found), found[0].order, _element(call, found[1:]))
    return [call.emit("SELECT_V2", found, like, "SelectV2Options", {})]


def unary(call: Call) -> Sequence[Tensor] | None:
    """An op of one tensor, element by element."""
    form, attributes = UNARIES[call.op.type], call.op.attributes
    if not form.computes(attributes):
        return None
    check_result(call, form.operator)
    x = call.tensor(0)
    like = call.like(x.shape, x.order, _element(call, [x]))
    return [call.emit(form.operator, [x], like, form.table, form.options(attributes))]


def along_last(call: Call) -> Sequence[Tensor] | None:
    """Softmax, LogSoftmax and LpNormalization, which run along the axis that is stored last."""
    form = ALONG[call.op.type]
    if not form.computes(call.op.attributes):
        return None
    check_result(call, form.operator)
    x = call.tensor(0)
    axis = call.op.attributes.get("axis", -1) % len(x.shape)
    order = (*(i for i in x.order if i != axis), axis)
    x = call.builder.program.ordered(x, order)
    options = form.options(call.op.attributes)
    return [call.emit(form.operator, [x], call.like(x.shape, order), form.table, options)]


def check_result(call: Call, operator: str) -> None:
    """Refuse a type of the result that the runtime's kernel does not take: it knows one for each width.

    Raises:
      UnsupportedExport: with the scale and zero point that it takes.
    """
    known = None if call.y is None else RESULTS.get((operator, call.y.storage.bits))
    if call.y is None or known is None or (call.y.scale, call.y.zero_point) == known:
        return
    scale, zero_point = known
    raise call.builder.refuse(
        f"the result of {call.op.type} has scale {call.y.scale!r} and zero point {call.y.zero_point}; "
        f"{operator} accepts {scale!r} and {zero_point} in {call.y.storage.bits} bits",
        "use a target whose row fixes it, as litert-int8 does",
    )


def prelu(call: Call) -> Sequence[Tensor] | None:
    """PRelu, the slope aligned with the activation; a slope that is larger has no operator."""
    x, slope = aligned(call, (0, 1))
    if _broadcast((x, slope)) != x.shape:
        return None
    return [call.emit("PRELU", (x, slope), call.like(x.shape, x.order), "", {})]


def reciprocal(call: Call) -> Sequence[Tensor] | None:
    """Reciprocal in float: DIV of one."""
    if call.y is not None:
        return None
    x = call.tensor(0)
    one = call.builder.program.constant(np.ones((1,) * len(x.shape)), "f32", "one")
    return [call.emit("DIV", (one, x), call.like(x.shape, x.order), "DivOptions", {})]


def cast(call: Call) -> Sequence[Tensor] | None:
    """CAST between element types that are not quantized."""
    x, wanted = call.tensor(0), call.builder.graph.values[call.op.outputs[0]].dtype
    if x.element not in _CODES or wanted not in _CODES:
        return None
    if x.element == wanted:
        return [x]
    options = {"InDataType": _CODES[x.element], "OutDataType": _CODES[wanted]}
    return [call.emit("CAST", [x], call.like(x.shape, x.order, wanted), "CastOptions", options)]


def onto(call: Call, index: int, tensor: Tensor) -> Tensor:
    """An operand on the result's grid: itself, or a QUANTIZE of it."""
    kind = call.kind(index)
    if kind is None or call.y is None:
        return tensor
    return call.builder.rescale(call.op.inputs[index], tensor, kind, call.y)


def aligned(call: Call, indices: Sequence[int]) -> list[Tensor]:
    """Operands of one rank, stored in one order: that of the first whole tensor computed here."""
    values, program = call.builder.values, call.builder.program
    names = [call.op.inputs[i] for i in indices]
    ranks = [len(call.builder.sizes(name)) for name in names]
    rank = max(ranks)
    tensors = {
        i: program.raised(call.tensor(i), rank)
        for i, name in zip(indices, names, strict=True)
        if not values.is_constant(name)
    }
    whole = [i for i, own in zip(indices, ranks, strict=True) if i in tensors and own == rank]
    order: Order = tensors[whole[0]].order if whole else plain(rank)
    found = []
    for i, own in zip(indices, ranks, strict=True):
        if i in tensors:
            found.append(program.ordered(tensors[i], order))
        else:
            found.append(_constant(call, i, own, order))
    return found


def _constant(call: Call, index: int, rank: int, order: Order) -> Tensor:
    """A constant with ones in front where it has fewer axes, stored in an order."""
    extra = len(order) - rank
    own = tuple(axis - extra for axis in order if axis >= extra)
    tensor = call.tensor(index, own)
    if not extra:
        return tensor
    sizes = (*(1,) * extra, *tensor.sizes)
    return call.builder.program.reshaped(tensor, [sizes[axis] for axis in order], order)


def _broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*(tensor.shape for tensor in tensors)))


def _element(call: Call, tensors: Sequence[Tensor]) -> str:
    """The element type of a result that is not quantized."""
    return "" if call.y is not None else tensors[0].element


_CODES: Final = {"bool": 6, "f32": 0, "i8": 9, "i32": 2, "i64": 4}
RESULTS: Final[Mapping[tuple[str, int], tuple[float, int]]] = {
    ("L2_NORMALIZATION", 8): (1 / 128, 0),
    ("LOGISTIC", 8): (1 / 256, -128),
    ("LOGISTIC", 16): (1 / 32768, 0),
    ("LOG_SOFTMAX", 8): (16 / 256, 127),
    ("SOFTMAX", 8): (1 / 256, -128),
    ("SOFTMAX", 16): (1 / 32768, 0),
    ("TANH", 8): (1 / 128, 0),
    ("TANH", 16): (1 / 32768, 0),
}
"""Scale and zero point of results, by operator and bits, that the runtime insists on."""
