"""finn: integer weights, MultiThresholds for activations and requantizes, scales behind the linear ops.

The thresholds hold exactly what the row's arithmetic makes of each sum: ties, biases, fused activations. A
quantized kernel without such a form is refused; float kernels remain float. Source: FINN documentation,
"Streamlining"; docs/formats.md.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import eq
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import RuleError, UnsupportedExport
from planner.formats.common.blocks import Clamp, blocks, clamp_of
from planner.formats.common.linear_operands import (
    largest,
    range_of,
    rounding_of,
    shifted_weight,
    stored_bias,
    weighted_product_of,
)
from planner.formats.common.thresholds import least_arguments
from planner.formats.onnx.writer.float_blocks import products
from planner.formats.onnx.writer.integers.rescaling import single
from planner.formats.onnx.writer.port_support import beyond, common_problem, refusal, typed_ports
from planner.formats.qonnx.channels_last import moved_with_channels_last
from planner.formats.qonnx.channelwise import channelwise
from planner.formats.qonnx.finn_builder import FinnModelBuilder, datatype_of_array, layout_of
from planner.formats.qonnx.finn_reductions import average, largest_of_all, place_of_largest
from planner.formats.qonnx.signs import Sign, signs_of
from planner.formats.qonnx.windows import window_of
from planner.interpreter.calls import FLOAT32_EVEN
from planner.interpreter.fixed_point import is_fixed_point
from planner.interpreter.requantize import output_multiplier
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, moved_kind, operand_of
from planner.lowering.products import Product
from planner.plans.plan import Plan

Writer: TypeAlias = Callable[[FinnModelBuilder, Block, Uniform, Clamp], bool]

MAX_BITS: Final = 10
_EXACT: Final = 1 << 24
_ACCEPTED: Final = (
    f"up to {MAX_BITS} bits per tensor for activations, any integers of constants per tensor or per channel"
)
_CUT: Final = frozenset({"Clip", "Relu"})
"""Ops that move integers and have a layer as thresholds alone."""
_LINEAR: Final = frozenset({"exact_even", "power_of_two"})  # a sum is rounded once, however it is split


def _follows(arithmetic: str) -> bool:
    """Whether thresholds follow an arithmetic's sums; of `litert` some kernels round in ways of their own."""
    return arithmetic == FLOAT32_EVEN or (is_fixed_point(arithmetic) and arithmetic != "litert")


def write_finn(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model for FINN; IR 10, the model's opset, `qonnx.custom_op.general` 1.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type or kernel that thresholds do not express, with port and row.
    """
    for address, row, value, kind in typed_ports(plan):
        problem = common_problem(kind) or _problem(kind, is_constant=value in graph.constants)
        if problem:
            raise refusal(address, row, value, kind, f"{problem}; finn accepts {_ACCEPTED}")
    streams = FinnModelBuilder(graph, plan)
    signs = signs_of(graph, list(plan.graph.all_ops()))
    for block in blocks(plan):
        try:
            if not _write_signs(streams, block, signs):
                _write_block(streams, block)
        except RuleError as error:
            raise beyond(block.kernel, error) from error
    return streams.finish()


def _problem(kind: object, *, is_constant: bool) -> str:
    if not isinstance(kind, Uniform):
        return ""
    if kind.grid:
        return "scales per block"
    if is_constant:
        return ""
    if kind.ranges or not kind.is_per_tensor:
        return "a scale or a range per slice"
    return "" if kind.storage.bits <= MAX_BITS else f"{kind.storage.bits} bits"


def _write_block(streams: FinnModelBuilder, block: Block) -> None:
    streams.values.arithmetic = block.arithmetic or FLOAT32_EVEN
    if not block.is_integer:
        _write_floats(streams, block, block.region.ops, {})
        return
    if _write_movement(streams, block) or place_of_largest(streams, block) or _hand_on(streams, block):
        return
    writer = WRITERS.get(tuple(op.type for op in block.core), channelwise)
    kind = block.y
    if kind is not None and _follows(streams.values.arithmetic):
        clamp = clamp_of(streams.values, block.activation, kind)
        if clamp is not None and clamp.low < clamp.high and writer(streams, block, kind, clamp):
            return
    ops = "+".join(op.type for op in block.region.ops)
    port = next((port.address for port in block.kernel.outputs if port.value), block.kernel.name)
    raise UnsupportedExport(
        f"{port} (row {block.kernel.row}): thresholds do not compute {ops} in {streams.values.arithmetic} "
        "with these types; finn accepts Conv, Gemm and MatMul with constant weights and sums below 2^24, "
        "Add of one scale, functions of one stream and constants per channel that only rise or only fall, "
        "averages of whole images and of windows without padding, ArgMax, and ops that move data, each with "
        "Relu, Clip or nothing behind it",
        hint="leave the kernel float (annotate its result with !quant.none), or export qonnx",
    )


def _write_signs(streams: FinnModelBuilder, block: Block, found: Mapping[str, Sign]) -> bool:
    """The sign of a BipolarQuant is one threshold."""
    value = block.region.ops[0].outputs[0]
    if value not in found or block.is_integer or len(block.region.ops) > 1:
        return False
    source, _, scale = found[value]
    signs = streams.signs(streams.values.real(source), f"{value}_signs")
    streams.bipolar[value] = signs, scale
    real = signs
    if scale != 1:
        factor = streams.constant(f"{value}_scale", np.asarray(scale, np.float32))
        real = streams.emit("Mul", [signs, factor], f"{value}_real")
    streams.values.define_real(value, real)
    return True


def _signs(streams: FinnModelBuilder, x: Operand) -> tuple[str, int] | None:
    """The signs that a value is, and the integer that its type makes of one; None where it has none."""
    if x.value not in streams.bipolar or streams.values.bases.get(x.value) is not None:
        return None
    tensor, scale = streams.bipolar[x.value]
    stored = quantize_array(np.asarray([-scale, scale], np.float32), x.kind).astype(np.int64)
    low, high = (int(end) - x.kind.zero_point for end in stored)
    return (tensor, high) if high == -low > 0 else None


def _hand_on(streams: FinnModelBuilder, block: Block) -> bool:
    """A product whose sums no thresholds follow: scaled, and its bias added, in float."""
    for part in products(block):
        product = weighted_product_of(streams.values, part, max_bits=MAX_BITS)
        if product is None or max(map(np.max, map(np.abs, range_of(streams.values, product)))) >= _EXACT:
            continue
        signs = _signs(streams, product.x)
        x, one = (streams.values.integers(product.x.value, product.x.kind), 1) if signs is None else signs
        shape = (-1, *[1] * product.trailing)
        sums, stored = _sums(streams, block, product, x), stored_bias(streams.values, product)
        if one != 1:
            sums = streams.emit("Mul", [sums, streams.constant(f"{part.result}_one", np.asarray(one))], sums)
        if stored is not None:
            added = streams.constant(f"{part.result}_added", stored.reshape(shape), datatype_of_array(stored))
            sums = streams.emit("Add", [sums, added], sums)
        w_scales = np.asarray(product.w.kind.scales, np.float32)
        scales = output_multiplier(product.x.kind.scale, w_scales, 1.0, alpha=product.alpha)
        factor = streams.constant(f"{part.result}_scale", scales.reshape(shape if scales.size > 1 else ()))
        real = streams.emit("Mul", [sums, factor], f"{part.result}_scaled")
        if product.real_bias is not None:
            bias = streams.constant(f"{part.result}_bias", np.asarray(product.real_bias).reshape(shape))
            real = streams.emit("Add", [real, bias], f"{part.result}_sum")
        rest = block.core[len(part.core) :]
        _write_floats(streams, block, rest, {part.result: real})
        return True
    return False


def _write_floats(streams: FinnModelBuilder, block: Block, ops: Sequence[Op], inner: dict[str, str]) -> None:
    """Ops of a region on real tensors; `inner`: those that its ops before them gave."""
    ports = {port.value for port in block.kernel.outputs if port.value}
    for op in ops:
        if op.captures:
            raise UnsupportedExport(
                f"{block.kernel.name!r}: {op.type} at {op.name!r} has subgraphs, which FINN lacks",
                hint="export qonnx",
            )
        inputs = [inner.get(name) or (name and streams.values.real(name)) for name in op.inputs]
        outputs = [
            name and (streams.file.fresh(f"{name}_real") if name in ports else name) for name in op.outputs
        ]
        inner.update(zip(op.outputs, outputs, strict=True))
        streams.file.emit_op(op, inputs, outputs)
    for name in ports:
        streams.values.define_real(name, inner[name])


def _write_movement(streams: FinnModelBuilder, block: Block) -> bool:
    """Data-movement operators take integers less their zero point as they are."""
    op, kind = block.region.ops[0], moved_kind(block, streams.graph, eq)
    if kind is None or op.type in _CUT:
        return False
    inputs = [
        streams.values.integers(name, kind)
        if (op.name, i) in block.kinds
        else (name and streams.values.real(name))
        for i, name in enumerate(op.inputs)
    ]
    outputs = [name and streams.file.fresh(f"{name}_integers") for name in op.outputs]
    op = largest_of_all(streams, block) or op
    if not moved_with_channels_last(streams.file, streams.graph, op, inputs, outputs):
        streams.file.emit_op(op, inputs, outputs)
    for port in block.kernel.outputs:
        if port.value:
            streams.define_integers(port.value, kind, outputs[op.outputs.index(port.value)])
    return True


def _linear(streams: FinnModelBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Conv, Gemm, MatMul: integers times integers, then thresholds on the sum; the bias is in these."""
    product = weighted_product_of(streams.values, block, max_bits=MAX_BITS)
    if product is None:
        return False
    low, high = range_of(streams.values, product)
    bias = stored_bias(streams.values, product)
    none = np.zeros_like(low) if bias is None else bias
    if max(-(low - none).min(initial=0), (high - none).max(initial=0)) >= _EXACT:
        return False
    rounding = rounding_of(streams.values, product, y, clamp.low, clamp.high)
    if bias is None and len(rounding.numerators) == 1:
        low, high = low.min()[None], high.max()[None]
        none = np.zeros_like(low)
    rounding = rounding.spread(len(low))
    levels = least_arguments(lambda v: rounding.stored(v) - clamp.low, low, high, clamp.high - clamp.low)
    rank = len(streams.graph.values[block.kernel.outputs[0].value].shape or ())
    layout = layout_of(1 if product.op.type == "Conv" else rank - 1, rank)
    signs = _signs(streams, product.x)
    x, one = (streams.values.integers(product.x.value, product.x.kind), 1) if signs is None else signs
    # A sum of signs times `one` reaches t where the sum of signs reaches t / one, rounded up.
    least = -((none[:, None] - levels.least) // one)
    streams.settle(block, _sums(streams, block, product, x), least, clamp, layout)
    return True


def _sums(streams: FinnModelBuilder, block: Block, product: Product, x: str) -> str:
    """The product of integers, a tensor of integers in float32."""
    op = product.op
    weight = shifted_weight(np.asarray(product.weight), product.w.kind)
    if op.type == "Gemm" and op.attributes.get("transB"):
        weight = np.ascontiguousarray(weight.T)
    name = streams.constant(f"{product.w.value}_integers", weight, datatype_of_array(weight))
    kind = "Conv" if op.type == "Conv" else "MatMul"
    attributes = {**op.attributes, **window_of(streams.graph, op)} if kind == "Conv" else {}
    return streams.emit(kind, [x, name], f"{block.result}_sum", attributes)


def _plus(streams: FinnModelBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Add of two streams of one scale, or of a constant to a stream."""
    op = block.core[0]
    a, b = operand_of(block, op, 0), operand_of(block, op, 1)
    if a is None or b is None:
        return False
    if streams.values.is_constant(a.value) or streams.values.is_constant(b.value):
        return channelwise(streams, block, y, clamp)
    if streams.values.arithmetic not in _LINEAR or a.kind.scale != b.kind.scale:
        return False
    sides = [streams.values.integers(side.value, side.kind) for side in (a, b)]
    rounding = single(y, streams.values.arithmetic, a.kind.scale, 0.0, clamp)
    reach = np.asarray([largest(a.kind) + largest(b.kind)])
    levels = least_arguments(lambda v: rounding.stored(v) - clamp.low, -reach, reach, clamp.high - clamp.low)
    streams.settle(block, streams.emit("Add", sides, f"{block.result}_sum"), levels.least, clamp)
    return True


WRITERS: Final[Mapping[tuple[str, ...], Writer]] = {
    ("Add",): _plus,
    ("AveragePool",): average,
    ("Conv",): _linear,
    ("Gemm",): _linear,
    ("GlobalAveragePool",): average,
    ("MatMul",): _linear,
    ("MatMul", "Add"): _linear,
    ("ReduceMean",): average,
}
