"""Floats: what a plan leaves float, where TOSA's float profile (PRO-FP) has operators for it.

Results are those of float32 arithmetic, but exponentials, reciprocals and sums may differ from another
engine's in their last bits. Integers that stand for no reals are written here too: arithmetic of 8 and 16
bits in 32, of which the last bits stay, as ONNX's wraps.
Source: TOSA 1.0, elementwise and activation operators.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import axes_of, plain
from planner.formats.onnx.dtypes import NAMES
from planner.formats.tosa import vocabulary
from planner.formats.tosa.writer.elementwise import joined, selected
from planner.formats.tosa.writer.float_conversion import bounded, scaled
from planner.formats.tosa.writer.linear import conv_reals
from planner.formats.tosa.writer.matrices import Matrices
from planner.formats.tosa.writer.movement import move
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.pooling import average_reals, reduced
from planner.formats.tosa.writer.program_builder import PLAIN_ELEMENTS, ProgramBuilder, held
from planner.formats.tosa.writer.resizing import resize_reals
from planner.formats.tosa.writer.scaling import clamp, widened
from planner.ir.graph import Op
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, bounds_of
from planner.ops import of_form
from planner.ops.forms import Form

FloatOp: TypeAlias = Callable[[ProgramBuilder, Op, Sequence[Tensor]], Tensor | None]


def write_floats(builder: ProgramBuilder, block: Block) -> None:
    """The ops of a float region, one by one.

    Shape arithmetic that TOSA cannot say is left out: sizes are numbers here, and consumers report missing
    operands.

    Raises:
      UnsupportedExport: an op that TOSA cannot say.
    """
    has_ports = any(port.value for port in (*block.kernel.inputs, *block.kernel.outputs))
    if not has_ports and not _is_computable(builder, block.region.ops):
        return
    for name, tensor in _computed(builder, block, block.region.ops).items():
        builder.values.define_real(name, tensor)


def _is_computable(builder: ProgramBuilder, ops: Sequence[Op]) -> bool:
    """Whether ops have operators, and operands that are there."""
    inner = {name for op in ops for name in op.outputs}
    names = {name for op in ops for name in op.inputs if name} - inner
    has_words = all(op.type in FLOAT_OPS or is_movement(op, builder.graph) for op in ops)
    return has_words and all(
        builder.values.is_constant(name) or name in builder.values.bases for name in names
    )


def write_real(builder: ProgramBuilder, block: Block, y: Uniform, ends: Clamp) -> None:
    """A block that its row computes in float32: reals of what it reads, the ops, their result quantized.

    Raises:
      UnsupportedExport: an op that TOSA cannot say.
    """
    result = _computed(builder, block, block.core)[block.core[-1].outputs[0]]
    port = block.kernel.outputs[0].value
    stored = builder.quantize(port, result, y)
    builder.settle(port, y, stored, ends.low, ends.high)


def _computed(builder: ProgramBuilder, block: Block, ops: Sequence[Op]) -> Mapping[str, Tensor]:
    """The results of ops on reals, by value name; operands at integer ports are seen through their types."""
    inner: dict[str, Tensor] = {}
    for op in ops:
        operands = [
            inner.get(name) or builder.seen(name, block.kinds.get((op.name, i)))
            for i in _data(op)
            if (name := op.inputs[i])
        ]
        found = _results(builder, op, operands)
        if found is None or len([name for name in op.outputs if name]) > len(found):
            known = f"tosa accepts there {', '.join(sorted(FLOAT_OPS))} and ops that move data"
            if op.type in FLOAT_OPS:
                known = f"tosa has {op.type} with other operands or attributes (docs/mlir.md)"
            reason = f" ({block.kernel.reason})" if block.kernel.reason else ""
            raise builder.refuse(f"kernel {block.kernel.name!r} runs {op.type} in float{reason}; {known}")
        inner.update(zip(op.outputs, found, strict=False))
        for name, tensor in zip(op.outputs, found, strict=False):
            if tensor.element != "f32":  # an index, which data movement asks for by name
                builder.values.define_real(name, tensor)
    return inner


def compare(builder: ProgramBuilder, block: Block) -> bool:
    """A comparison of two stored tensors: in i32 where they are of one type, else on their reals."""
    op = block.core[0]
    kinds = [block.kinds.get((op.name, i)) for i in (0, 1)]
    if op.type not in COMPARISONS or len(block.core) != 1:
        return False
    operands = []
    for value, kind in zip(op.inputs, kinds, strict=True):
        if not isinstance(kind, Uniform) or not kind.is_per_tensor:
            return False
        tensor = widened(builder.program, builder.operand(value, kind), held(kind).zero_point)
        if kinds[0] != kinds[1]:
            tensor = builder.program.emit("cast", [tensor], replace(tensor, element="f32"), f"{value}_f32")
            tensor = scaled(builder.program, tensor, kind.scale, f"{value}_real")
        operands.append(tensor)
    builder.values.define_real(op.outputs[0], _compared(builder, op, operands))
    return True


def argmax(builder: ProgramBuilder, block: Block) -> bool:
    """ArgMax of stored integers: its indices are i32."""
    op = block.core[0]
    kind = block.kinds.get((op.name, 0))
    if op.type != "ArgMax" or len(block.core) != 1 or not isinstance(kind, Uniform) or not kind.is_per_tensor:
        return False
    if op.attributes.get("select_last_index"):
        return False
    x = builder.values.integers(op.inputs[0], kind)
    builder.values.define_real(op.outputs[0], _place_of_most(builder, op, x, op.outputs[0]))
    return True


def _place_of_most(builder: ProgramBuilder, op: Op, x: Tensor, stem: str) -> Tensor:
    """The index of the largest element along an axis, the first of equal ones."""
    axis = op.attributes.get("axis", 0 if op.type == "ArgMax" else -1) % len(x.shape)
    at = x.at(axis)
    order = tuple(i - (i > axis) for i in x.order if i != axis)
    shape = (*x.shape[:at], *x.shape[at + 1 :])
    attributes = {"axis": f"{at} : i32", "nan_mode": "#tosa.nan_mode<PROPAGATE>"}
    found = builder.program.emit("argmax", [x], Tensor("", shape, "i32", order), stem, attributes=attributes)
    if not op.attributes.get("keepdims", 1):
        return found
    found = builder.program.ordered(found, plain(len(shape)))
    kept = [1 if i == axis else size for i, size in enumerate(x.sizes)]
    return builder.program.reshaped(found, kept)


def _top_one(builder: ProgramBuilder, op: Op, x: Tensor) -> Sequence[Tensor] | None:
    """TopK of one: the largest element, and where it is."""
    if (
        not builder.values.is_constant(op.inputs[1])
        or int(builder.values.array(op.inputs[1]).reshape(-1)[0]) != 1
    ):
        return None
    if not op.attributes.get("largest", 1):
        return None
    axis = op.attributes.get("axis", -1) % len(x.shape)
    most = reduced(builder, "reduce_max", x, axis, op.outputs[0])
    return [most, _place_of_most(builder, op, x, op.outputs[1] or op.name)]


def _results(builder: ProgramBuilder, op: Op, operands: Sequence[Tensor]) -> Sequence[Tensor] | None:
    """Results of one op on float tensors, masks or indices."""
    if op.captures or not operands:
        return None
    if op.type == "TopK":
        return _top_one(builder, op, operands[0])
    if is_movement(op, builder.graph) and (op.type not in FLOAT_OPS or op.type == "Resize"):
        return move(builder, op, operands, None)
    writer = FLOAT_OPS.get(op.type)
    if writer is None:
        return None
    narrow = next((x.element for x in operands if x.element in _NARROW and op.type not in _OF_ANY_WIDTH), "")
    if narrow:
        operands = [builder.program.cast(x, "i32") for x in operands]
    found = writer(builder, op, operands)
    if found is None:
        return None
    return [builder.program.cast(found, narrow) if narrow and found.element == "i32" else found]


def _data(op: Op) -> Sequence[int]:
    """Which operands are data: not the shapes, indices and bounds of data movement and reductions."""
    several = ("Gemm", "LayerNormalization", "MatMul", "Where")
    is_variadic = op.type in several or op.type in _PAIRS
    return range(len(op.inputs) if is_variadic else min(len(op.inputs), 1))


def _softmax(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    """EXP of what is left after the maximum, over its sum."""
    powers, total = _powers(builder, op, tensors[0])[1:]
    share = builder.program.emit("reciprocal", [total], total, f"{op.outputs[0]}_share")
    return _times(builder, powers, share, op.outputs[0])


def _log_softmax(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    below, _, total = _powers(builder, op, tensors[0])
    height = builder.program.emit("log", [total], total, f"{op.outputs[0]}_log")
    return joined(builder, "sub", [below, height], op.outputs[0])


def _powers(builder: ProgramBuilder, op: Op, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The difference from the maximum, its EXP, and the sum of that."""
    axis, stem = op.attributes.get("axis", -1) % len(x.shape), op.outputs[0]
    top = reduced(builder, "reduce_max", x, axis, f"{stem}_max")
    below = joined(builder, "sub", [x, top], stem)
    powers = builder.program.emit("exp", [below], below, f"{stem}_exp")
    return below, powers, reduced(builder, "reduce_sum", powers, axis, f"{stem}_sum")


def _times(builder: ProgramBuilder, a: Tensor, b: Tensor, stem: str) -> Tensor:
    return joined(builder, "mul", [a, b], stem, builder.program.number(0, "i8"))


def _divide(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    a, b = builder.program.alike(tensors)
    if a.element != "f32":
        return joined(builder, "intdiv", [a, b], op.outputs[0])
    inverse = builder.program.emit("reciprocal", [b], b, f"{op.outputs[0]}_inverse")
    return _times(builder, a, inverse, op.outputs[0])


def _binary(kind: str) -> FloatOp:
    def write(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
        more = (builder.program.number(0, "i8"),) if kind == "mul" else ()
        found, *rest = builder.program.alike(tensors)
        for side in rest:  # a Max or Min of several goes two by two
            found = joined(builder, kind, [found, side], op.outputs[0], *more)
        return found

    return write


def _power(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """POW is not defined below zero, so small whole powers are products."""
    exponent = builder.values.array(op.inputs[1]) if builder.values.is_constant(op.inputs[1]) else np.zeros(0)
    if exponent.size != 1 or exponent.item() not in _WHOLE_POWERS:
        return _binary(vocabulary.BINARIES[op.type])(builder, op, tensors)
    result = tensors[0]
    for _ in range(int(exponent.item()) - 1):
        result = _times(builder, result, tensors[0], op.outputs[0])
    return result


def _square_root(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    half = builder.program.constant(np.full((1,) * len(tensors[0].shape), 0.5), "f32")
    return builder.program.emit("pow", [tensors[0], half], tensors[0], op.outputs[0])


def _compared(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    """A comparison of reals or of counts; of stored integers see `compare`."""
    pair = builder.program.alike(tensors)
    pair = pair[::-1] if op.type.startswith("Less") else pair
    shape = np.broadcast_shapes(*(tensor.shape for tensor in pair))
    like = replace(pair[0], shape=tuple(shape), element="i1")
    return builder.program.emit(_comparison(op), pair, like, op.outputs[0])


def _comparison(op: Op) -> str:
    """The operator of a comparison, of swapped operands for a Less."""
    if op.type == "Equal":
        return "equal"
    return "greater_equal" if op.type.endswith("OrEqual") else "greater"


def _matmul(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    sides = Matrices.of(builder.program, *tensors)
    zeros = [builder.program.number(0, "f32")] * 2
    return builder.program.reshaped(sides.product(builder.program, zeros, "f32", op.outputs[0]), sides.sizes)


def _gemm(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    """MATMUL, its result and the bias each times their number."""
    a, b, *more = tensors
    a = _turned(a) if op.attributes.get("transA") else a
    b = _turned(b) if op.attributes.get("transB") else b
    stem, alpha, beta = op.outputs[0], op.attributes.get("alpha", 1.0), op.attributes.get("beta", 1.0)
    found = _matmul(builder, op, (a, b))
    found = found if alpha == 1.0 else scaled(builder.program, found, alpha, stem)
    if not more:
        return found
    bias = more[0] if beta == 1.0 else scaled(builder.program, more[0], beta, stem)
    return joined(builder, "add", builder.program.alike((found, bias)), stem)


def _turned(x: Tensor) -> Tensor:
    """A matrix with its axes exchanged."""
    return replace(x, order=tuple(1 - axis for axis in x.order))


def _pad(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    found = move(builder, op, tensors[:1], None)
    return None if found is None else found[0]


def _most(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    if op.attributes.get("select_last_index") or tensors[0].element == "i32":  # which TOSA's takes none of
        return None
    return _place_of_most(builder, op, tensors[0], op.outputs[0])


def _selected(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    return selected(builder, tensors[0], tensors[1:], op.outputs[0])


def _unary(kind: str) -> FloatOp:
    def write(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
        return builder.program.emit(kind, [tensors[0]], tensors[0], op.outputs[0])

    return write


def _negate(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    if tensors[0].element != "f32":
        none = builder.program.tensor(np.zeros((1,) * len(tensors[0].shape)), "i32", tensors[0].order)
        return joined(builder, "sub", [none, tensors[0]], op.outputs[0])
    return scaled(builder.program, tensors[0], -1.0, op.outputs[0])


def _clip(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """Relu, and Clip with constant bounds."""
    bounds = bounds_of(op, builder.values.known)
    if bounds is None:
        return None
    is_real = tensors[0].element == "f32"
    limit = float(np.finfo(np.float32).max) if is_real else float(np.iinfo(np.int32).max)
    low, high = (end if bound is None else bound for bound, end in zip(bounds, (-limit, limit), strict=True))
    if not is_real:
        ends = int(max(low, -limit - 1)), int(min(high, limit))
        return clamp(builder.program, tensors[0], *ends, op.outputs[0])
    return bounded(builder.program, tensors[0], max(low, -limit), min(high, limit), op.outputs[0])


def _mean(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """ReduceMean, ReduceProd, ReduceSum and GlobalAveragePool over constant axes."""
    x, rank = tensors[0], len(tensors[0].shape)
    axes = axes_of(builder.values, op, rank)
    if axes is None:
        return None
    count = prod(x.sizes[axis] for axis in axes)
    kind = "reduce_product" if op.type == "ReduceProd" else "reduce_sum"
    for axis in axes:
        x = reduced(builder, kind, x, axis, f"{op.outputs[0]}_sum")
    if op.type in ("GlobalAveragePool", "ReduceMean"):
        x = scaled(builder.program, x, 1 / count, op.outputs[0])
    if op.attributes.get("keepdims", 1):
        return x
    x = builder.program.ordered(x, plain(rank))
    return builder.program.reshaped(x, [size for i, size in enumerate(x.shape) if i not in axes])


def _layer_normalization(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    if any(op.outputs[1:]):
        return None
    x, stem, program = tensors[0], op.outputs[0], builder.program
    axes = range(op.attributes.get("axis", -1) % len(x.shape), len(x.shape))
    share = 1 / prod(x.sizes[axis] for axis in axes)
    middle = _averaged(builder, x, axes, share, stem)
    apart = joined(builder, "sub", [x, middle], stem)
    spread = _averaged(builder, _times(builder, apart, apart, stem), axes, share, stem)
    least = program.constant(np.full((1,) * len(x.shape), op.attributes.get("epsilon", 1e-5)), "f32")
    spread = program.emit("add", [spread, least], spread, f"{stem}_spread")
    inverse = program.emit("rsqrt", [spread], spread, f"{stem}_rsqrt")
    a, b = builder.program.alike([_times(builder, apart, inverse, stem), tensors[1]])
    result = _times(builder, a, b, stem)
    if len(tensors) == 2:
        return result
    return joined(builder, "add", builder.program.alike([result, tensors[2]]), stem)


def _batch_normalization(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """With constant statistics: one MUL and one ADD along axis 1."""
    if not all(builder.values.is_constant(name) for name in op.inputs[1:5]):
        return None
    scale, shift, average, variance = (
        builder.values.array(name).astype(np.float32) for name in op.inputs[1:5]
    )
    slope = scale / np.sqrt(variance + np.float32(op.attributes.get("epsilon", 1e-5)))
    x, sizes = tensors[0], (1, -1, *(1,) * (len(tensors[0].shape) - 2))
    factor, term = (
        builder.program.tensor(numbers.reshape(sizes), "f32", x.order)
        for numbers in (slope, shift - average * slope)
    )
    return joined(builder, "add", [_times(builder, x, factor, op.outputs[0]), term], op.outputs[0])


def _averaged(builder: ProgramBuilder, x: Tensor, axes: Sequence[int], share: float, stem: str) -> Tensor:
    for axis in axes:
        x = reduced(builder, "reduce_sum", x, axis, f"{stem}_sum")
    return scaled(builder.program, x, share, f"{stem}_mean")


def _cast(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """To a float, an integer or a flag; a flag becomes a float by way of an integer."""
    x, wanted = tensors[0], PLAIN_ELEMENTS.get(NAMES.get(op.attributes.get("to", 0), ""))
    if wanted is None or (x.element == "f32" and wanted == "i1"):
        return None
    if x.element == "f32" and wanted != "f32":
        x = _toward_zero(builder, x, op.outputs[0])
    if x.element == "i1" and wanted == "f32":
        x = builder.program.cast(x, "i32")
    return builder.program.cast(x, wanted)


def _toward_zero(builder: ProgramBuilder, x: Tensor, stem: str) -> Tensor:
    """A float tensor without its fraction, which ONNX's Cast leaves out and TOSA's rounds."""
    program = builder.program
    none = program.constant(np.zeros((1,) * len(x.shape)), "f32")
    down, up = (program.emit(kind, [x], x, f"{stem}_{kind}") for kind in ("floor", "ceil"))
    is_below = program.emit("greater", [none, x], replace(x, element="i1"), f"{stem}_below")
    return program.emit("select", [is_below, up, down], x, f"{stem}_whole")


_NARROW: Final = frozenset({"i8", "i16"})
_OF_ANY_WIDTH: Final = {"ArgMax", "Cast", "Where"} | {
    ours for ours, theirs in vocabulary.OPERATORS.items() if theirs.startswith("bitwise_")
}
"""Operators that TOSA has for 8 and 16 bits as well."""
_WHOLE_POWERS: Final = (1, 2, 3, 4)
_PAIRS: Final = of_form(
    *(Form.BINARY, Form.COMPARISON, Form.CONCAT, Form.LOGICAL, Form.PRODUCT, Form.SUM, Form.VARIADIC)
)

COMPARISONS: Final = of_form(Form.COMPARISON)

FLOAT_OPS: Final[Mapping[str, FloatOp]] = {
    **{ours: _unary(theirs) for ours, theirs in vocabulary.UNARIES.items()},
    **{ours: _binary(theirs) for ours, theirs in vocabulary.BINARIES.items()},
    **dict.fromkeys(COMPARISONS, _compared),
    "ArgMax": _most,
    "AveragePool": average_reals,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Conv": conv_reals,
    "ConvTranspose": conv_reals,
    "Div": _divide,
    "Gemm": _gemm,
    "GlobalAveragePool": _mean,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _log_softmax,
    "MatMul": _matmul,
    "Mul": _binary("mul"),
    "Neg": _negate,
    "Pad": _pad,
    "Pow": _power,
    "ReduceMean": _mean,
    "ReduceProd": _mean,
    "ReduceSum": _mean,
    "Relu": _clip,
    "Resize": resize_reals,
    "Softmax": _softmax,
    "Sqrt": _square_root,
    "Where": _selected,
}
