"""Integer products that are the same sums on every processor.

On x86 without VNNI onnxruntime adds pairs of u8 x i8 products in 16 bits, which saturate, and takes the u8
weights of an i8 convolution for signed ones. No option reaches kernels that are not fused. Here the second
operand takes the element type of the first, 128 higher or lower, and so does its zero point: the sums are
those that the operator is defined to give. For models that run as an oracle, not for files.
Source: ONNX ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul; onnxruntime's com.microsoft.
"""

from typing import Final

import numpy as np

from planner.formats.onnx.dtypes import enum_of
from planner.formats.onnx.quantized.dialect import INTEGER_PRODUCTS
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Op, Value

_TURNED: Final = {("u8", "i8"): 128, ("i8", "u8"): -128}
"""The offset that is added to a second operand, by the element types of the first and the second."""


def with_exact_products(graph: Graph) -> Graph:
    """Return a model whose integer products are of one element type; itself where they are already.

    Args:
      graph: with element types (`infer`); an op without stays as it is.
    """
    if not any(op.type in INTEGER_PRODUCTS for op in graph.ops):
        return graph
    draft = draft_of(graph)
    for op in graph.ops:
        draft.ops.append(_of_one_type(op, draft) if op.type in INTEGER_PRODUCTS else op)
    return draft.finish()


def _of_one_type(op: Op, draft: Draft) -> Op:
    values = draft.graph.values
    at, zero_at = INTEGER_PRODUCTS[op.type]
    first, second = values[op.inputs[0]].dtype, values[op.inputs[at]].dtype
    shift = _TURNED.get((first, second))
    if shift is None:
        return op
    inputs = [*op.inputs, *[""] * (zero_at + 1 - len(op.inputs))]
    for place in (at, zero_at):
        inputs[place] = _shifted(op, inputs[place], first, shift, draft)
    return Op(op.name, op.type, tuple(inputs), op.outputs, op.attributes, op.captures)


def _shifted(op: Op, name: str, dtype: str, shift: int, draft: Draft) -> str:
    """The name of an operand so much higher, in an element type; an absent one is 0."""
    array = np.zeros((), np.int64) if not name else draft.array(name)
    stem = f"{name or op.name + '/zero'}/{dtype}"
    if array is not None:
        return draft.constant(stem, (array.astype(np.int64) + shift).astype(NUMPY[dtype]))
    shape = draft.graph.values[name].shape

    def step(kind: str, *inputs: str, to: str) -> str:
        made = draft.emit(op, kind, *inputs, attributes={"to": enum_of(to)} if kind == "Cast" else None)
        # `emit` takes the result's shape; these have the operand's.
        draft.values[made] = Value(made, shape, to)
        return made

    shifted = step(
        "Add", step("Cast", name, to="i32"), draft.constant(stem, np.asarray(shift, np.int32)), to="i32"
    )
    return step("Cast", shifted, to=dtype)
