"""QLinear: which integer operator of ONNX or com.microsoft computes a region's ops, and its operands.

A maker returns the call, or None where onnxruntime's CPU provider has no kernel for the types: x and y have
one storage of at most 8 bits, i8 activations take i8 weights, activations are per tensor, weights per tensor
or per output channel. It creates tensors only once it is sure. Source: onnxruntime's kernels, probed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from planner.formats.onnx.writer.model_builder import MICROSOFT, ModelBuilder
from planner.interpreter.calls import FLOAT32_EVEN, is_like
from planner.interpreter.kernels.linear import folds, is_known
from planner.interpreter.kernels.softmax import least_size, overflows
from planner.ir.graph import Shape
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, operand_of
from planner.lowering.products import Product, product_in
from planner.ops import CONCATS


@dataclass(frozen=True, slots=True)
class Call:
    """One operator: type, operand tensors, attributes.

    `reshape` names the constant shape its result is then brought into, "" where it has it already.
    """

    kind: str
    inputs: tuple[str, ...]
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    reshape: str = ""


CallMaker: TypeAlias = Callable[[ModelBuilder, Block, Uniform], Call | None]
FloatCallMaker: TypeAlias = Callable[[ModelBuilder, Block], Call | None]


def _known(builder: ModelBuilder, block: Block, y: Uniform | None) -> Product | None:
    """The product of a block, where onnxruntime multiplies its types in integers; to float without `y`."""
    found = product_in(builder.graph, block.core, block.kinds, builder.values.known, FLOAT32_EVEN)
    return found if found is not None and is_known(found, y) else None


def conv(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
    """QLinearConv: x, w with their parameters, those of y, and an int32 bias."""
    found = _known(builder, block, y)
    if found is None:
        return None
    bias = () if found.bias is None else (builder.stored(found.bias.value, found.bias.kind),)
    operands = (*builder.triple(found.x), *builder.triple(found.w))
    inputs = (*operands, *builder.parameters(y, block.result), *bias)
    return Call("QLinearConv", inputs, attributes=found.op.attributes)


def matmul(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
    """QLinearMatMul, batched too; a 2-d weight may have a scale per column."""
    found = _known(builder, block, y)
    if found is None:
        return None
    operands = (*builder.triple(found.x), *builder.triple(found.w))
    return Call("QLinearMatMul", (*operands, *builder.parameters(y, block.result)))


def matmul_to_float(builder: ModelBuilder, block: Block) -> Call | None:
    """MatMulIntegerToFloat, batched too; a 2-d weight may have a scale per column."""
    found = _known(builder, block, None)
    if found is None:
        return None
    first, second = builder.triple(found.x), builder.triple(found.w)
    inputs = (first[0], second[0], first[1], second[1], first[2], second[2])
    return Call("MatMulIntegerToFloat", inputs, MICROSOFT)


def gemm(builder: ModelBuilder, block: Block, y: Uniform | None = None) -> Call | None:
    """QGemm of a Gemm (any alpha, beta 1), or of MatMul and Add; the result is float without a type.

    Leading dimensions of a MatMul are folded, and unfolded behind it.
    """
    found = _known(builder, block, y)
    rows: Shape = ()
    shape = None if found is None else builder.graph.values[found.w.value].shape
    if found is None or shape is None or len(shape) != 2:
        return None
    if len(block.core) > 1:
        sizes = builder.graph.values[found.x.value].shape
        if sizes is None or len(sizes) < 2 or not folds(sizes):
            return None
        rows = sizes[:-1]
    columns, op = shape[found.w_axis], found.op
    if not isinstance(columns, int):
        return None
    bias = "" if found.bias is None else _row(builder, found.bias, columns)
    tensor, *parameters = builder.triple(found.x)
    reshape = ""
    if len(rows) > 1:
        tensor = _folded(builder, tensor, shape[0])
        whole = [dim if isinstance(dim, int) else -1 for dim in (*rows, columns)]
        reshape = builder.file.constant(f"{block.result}_shape", np.asarray(whole, np.int64))
    inputs = (tensor, *parameters, *builder.triple(found.w), bias)
    if y is not None:
        inputs = (*inputs, *builder.parameters(y, block.result))
    attributes = {key: op.attributes[key] for key in ("alpha", "transA", "transB") if key in op.attributes}
    return Call("QGemm", inputs, MICROSOFT, attributes, reshape)


def _folded(builder: ModelBuilder, tensor: str, depth: Any) -> str:
    result = builder.file.fresh(f"{tensor}_rows")
    shape = builder.file.constant(f"{result}_shape", np.asarray([-1, depth], np.int64))
    builder.file.emit("Reshape", [tensor, shape], [result])
    return result


def _row(builder: ModelBuilder, b: Operand, columns: int) -> str:
    """The stored bias with shape (columns,), as QGemm wants it."""
    tensor = builder.stored(b.value, b.kind)
    if len(builder.graph.values[b.value].shape or ()) == 1:
        return tensor
    return builder.reshaped(tensor, (columns,))


def elementwise(kind: str) -> CallMaker:
    """QLinearAdd or QLinearMul of two 8-bit tensors of one storage."""

    def make(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
        a, b = operand_of(block, block.core[0], 0), operand_of(block, block.core[0], 1)
        if a is None or b is None or not (is_like(a.kind, y) and is_like(b.kind, y)):
            return None
        inputs = (*builder.triple(a), *builder.triple(b), *builder.parameters(y, block.result))
        return Call(kind, inputs, MICROSOFT)

    return make


def unary(kind: str, *, defaults: Mapping[str, Any], keep: tuple[str, ...] = ()) -> CallMaker:
    """An operator of one 8-bit tensor; attributes are `defaults`, those in `keep` as the op has them."""

    def make(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
        op = block.core[0]
        x = operand_of(block, op, 0)
        if x is None or not is_like(x.kind, y):
            return None
        attributes = {**defaults, **{key: op.attributes[key] for key in keep if key in op.attributes}}
        inputs = (*builder.triple(x), *builder.parameters(y, block.result))
        return Call(kind, inputs, MICROSOFT, attributes)

    return make


def average_pool(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
    """QLinearAveragePool, which knows no dilations and counts padding of rounded-up windows its own way."""
    attributes = block.core[0].attributes
    if any(step != 1 for step in attributes.get("dilations", ())):
        return None
    if attributes.get("ceil_mode") and attributes.get("count_include_pad"):
        return None
    return _average_pool(builder, block, y)


def softmax(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
    """QLinearSoftmax, where it does not overflow."""
    op = block.core[0]
    size = least_size(op, builder.graph.values[op.outputs[0]].shape)
    return None if overflows(size, y.scale) else _softmax(builder, block, y)


def concat(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
    """QLinearConcat: every input with its own parameters."""
    op = block.core[0]
    operands = [operand_of(block, op, i) for i in range(len(op.inputs))]
    inputs: tuple[str, ...] = ()
    for x in operands:
        if x is None or not is_like(x.kind, y):
            return None
    for x in operands:
        inputs += builder.triple(x) if x is not None else ()
    return Call("QLinearConcat", (*builder.parameters(y, block.result), *inputs), MICROSOFT, op.attributes)


def where(builder: ModelBuilder, block: Block, y: Uniform) -> Call | None:
    """QLinearWhere: condition, then both branches with their parameters."""
    op = block.core[0]
    a, b = operand_of(block, op, 1), operand_of(block, op, 2)
    if a is None or b is None or not (is_like(a.kind, y) and is_like(b.kind, y)):
        return None
    condition = builder.operand(op.inputs[0])
    inputs = (condition, *builder.triple(a), *builder.triple(b), *builder.parameters(y, block.result))
    return Call("QLinearWhere", inputs, MICROSOFT)


_average_pool: Final = unary(
    "QLinearAveragePool",
    defaults={"channels_last": 0},
    keep=("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"),
)
_softmax: Final = unary("QLinearSoftmax", defaults={"axis": -1, "opset": 13}, keep=("axis",))

FLOAT_CALLS: Final[Mapping[tuple[str, ...], FloatCallMaker]] = {
    ("Gemm",): gemm,
    ("MatMul",): matmul_to_float,
    ("MatMul", "Add"): gemm,
}
"""Integer operators whose result is float, by the types of a region's ops without a final Relu or Clip."""

CALLS: Final[Mapping[tuple[str, ...], CallMaker]] = {
    **{(kind,): concat for kind in CONCATS},
    ("Add",): elementwise("QLinearAdd"),
    ("AveragePool",): average_pool,
    ("Conv",): conv,
    ("Gemm",): gemm,
    ("GlobalAveragePool",): unary("QLinearGlobalAveragePool", defaults={"channels_last": 0}),
    ("LeakyRelu",): unary("QLinearLeakyRelu", defaults={}, keep=("alpha",)),
    ("MatMul",): matmul,
    ("MatMul", "Add"): gemm,
    ("Mul",): elementwise("QLinearMul"),
    ("Sigmoid",): unary("QLinearSigmoid", defaults={}),
    ("Softmax",): softmax,
    ("Where",): where,
}
