"""Rewrites that tools behind QONNX ask for by name: fewer kinds of ops, the same function.

Convolutions as Im2Col and MatMul, BatchNormalization as Mul and Add, Gemm as MatMul and Add. Sums of floats
may round in another order; sums of integers are the same. An op without such a form stays.
Source: QONNX transformations LowerConvsToMatMul, BatchNormToAffine, GemmToMatMul, ExtractBiasFromConv.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from planner.formats.onnx.naming import unused
from planner.formats.onnx.quantized.dialect import BIPOLAR, IM2COL, QUANT
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.formats.onnx.quantized.quantizers import Reader, reader_of
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Graph, Op, Value
from planner.ops.geometry.windows import conv_geometry

Rule = Callable[[Op, Draft, Reader], bool]

_TO_LAST: Final = (0, 2, 3, 1)
_TO_FIRST: Final = (0, 3, 1, 2)


def lowered(graph: Graph) -> Graph:
    """Each Conv of two spatial axes as Im2Col and MatMul, channels last between transposes."""
    done = _rewritten(graph, "Conv", _conv)
    return infer(done)


def affine(graph: Graph) -> Graph:
    """Each BatchNormalization of constants as Mul and Add."""
    return infer(_rewritten(graph, "BatchNormalization", _batch_normalization))


def matmuls(graph: Graph) -> Graph:
    """Each Gemm as MatMul and Add."""
    return infer(_rewritten(graph, "Gemm", _gemm))


def _rewritten(graph: Graph, kind: str, rule: Rule) -> Graph:
    draft, reader = draft_of(graph), reader_of(graph)
    for op in graph.ops:
        if op.type != kind or not rule(op, draft, reader):
            draft.ops.append(op)
    return draft.finish()


def _step(op: Op, draft: Draft, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
    """Append a step whose shape is inferred later."""
    result = draft.emit(op, kind, *inputs, out=out, attributes=attributes)
    if not out:
        draft.values[result] = Value(result, None, draft.graph.values[op.outputs[0]].dtype)
    return result


def _batch_normalization(op: Op, draft: Draft, _reader: Reader) -> bool:
    arrays = [draft.array(name) for name in op.inputs[1:5]]
    shape = draft.graph.values[op.inputs[0]].shape
    if shape is None or any(array is None for array in arrays) or len([out for out in op.outputs if out]) > 1:
        return False
    gain, offset, mean, variance = (np.asarray(array) for array in arrays)
    dtype = gain.dtype
    # In the tensors' own precision, as engines compute it.
    factor = gain / np.sqrt(variance + dtype.type(op.attributes.get("epsilon", 1e-5)))
    spread = [-1, *[1] * (len(shape) - 2)]
    names = [
        draft.constant(f"{op.outputs[0]}/{part}", array.reshape(spread).astype(dtype))
        for part, array in (("factor", factor), ("shift", offset - mean * factor))
    ]
    _step(op, draft, "Add", _step(op, draft, "Mul", op.inputs[0], names[0]), names[1], out=op.outputs[0])
    return True


def _gemm(op: Op, draft: Draft, _reader: Reader) -> bool:
    sides = []
    for name, key in zip(op.inputs[:2], ("transA", "transB"), strict=True):
        array = draft.array(name)
        if not op.attributes.get(key, 0):
            sides.append(name)
        elif array is not None:
            sides.append(draft.constant(f"{name}/turned", np.ascontiguousarray(array.T)))
        else:
            sides.append(_step(op, draft, "Transpose", name, perm=(1, 0)))
    bias = op.inputs[2] if len(op.inputs) > 2 else ""
    alpha, beta = (op.attributes.get(key, 1.0) for key in ("alpha", "beta"))
    steps = [("MatMul", sides[1])]
    if alpha != 1:
        steps.append(("Mul", draft.constant(f"{op.outputs[0]}/alpha", np.asarray(alpha, np.float32))))
    if bias and beta != 1:
        bias = _step(op, draft, "Mul", bias, draft.constant(f"{bias}/beta", np.asarray(beta, np.float32)))
    if bias:
        steps.append(("Add", bias))
    x = sides[0]
    for i, (kind, other) in enumerate(steps):
        x = _step(op, draft, kind, x, other, out=op.outputs[0] if i == len(steps) - 1 else "")
    return True


def _conv(op: Op, draft: Draft, reader: Reader) -> bool:
    shape, given = draft.graph.values[op.inputs[0]].shape, draft.graph.values[op.inputs[1]].shape
    if not _is_image(shape) or not _is_image(given):
        return False
    groups = int(op.attributes.get("group", 1))
    weight = _matrix(op, draft, reader, groups)
    if weight is None or shape is None or given is None:
        return False
    kernel = tuple(int(dim) for dim in given[2:] if isinstance(dim, int))
    found = conv_geometry(op.attributes, [dim for dim in shape[2:] if isinstance(dim, int)], kernel)
    window: dict[str, Any] = {
        "kernel_size": kernel,
        "stride": found.strides,
        "pad_amount": found.pads,
        "dilations": found.dilations,
    }
    x = _step(op, draft, "Transpose", op.inputs[0], perm=_TO_LAST)
    if kernel != (1, 1) or window["stride"] != (1, 1) or any(window["pad_amount"]):
        said = f"({', '.join(str(shape[axis]) for axis in _TO_LAST)})"
        more: dict[str, Any] = {
            "pad_value": 0,
            "depthwise": int(groups == shape[1] and groups > 1),
            "input_shape": said,
        }
        x = _step(op, draft, IM2COL, x, **window, **more)
    product = _step(op, draft, "MatMul", x, weight)
    if len(op.inputs) > 2 and op.inputs[2]:
        product = _step(op, draft, "Add", product, op.inputs[2])
    _step(op, draft, "Transpose", product, out=op.outputs[0], perm=_TO_FIRST)
    return True


def _is_image(shape: tuple[int | str | None, ...] | None) -> bool:
    return shape is not None and len(shape) == 4 and all(isinstance(dim, int) for dim in shape[1:])


def _matrix(op: Op, draft: Draft, reader: Reader, groups: int) -> str | None:
    """The weight as (height, width, channels in; channels out), behind its quantizer where it has one."""
    array = draft.array(op.inputs[1])
    if array is not None:
        return _in_place(op.inputs[1], _as_matrix(array, groups), draft, reader)
    made = reader.op(op.inputs[1], QUANT, BIPOLAR, "DequantizeLinear")
    arrays = [] if made is None else [draft.array(name) for name in made[1].inputs]
    if made is None or any(item is None for item in arrays):
        return None
    quantizer, (weight, *parameters) = made[1], [np.asarray(item) for item in arrays]
    # A channel of another group has the weight 0, which only a grid around 0 has.
    has_no_zero = quantizer.type == BIPOLAR or (quantizer.type == QUANT and np.any(parameters[-1] == 1))
    if groups > 1 and (has_no_zero or any(np.any(zero) for zero in parameters[1:2])):
        return None
    attributes = dict(quantizer.attributes)
    if quantizer.type == "DequantizeLinear":
        if attributes.get("block_size", 0) or (parameters[0].size > 1 and attributes.get("axis", 1) % 4):
            return None
        # The channels out are its columns.
        attributes["axis"] = 1
    names = [_in_place(quantizer.inputs[0], _as_matrix(weight, groups), draft, reader)]
    for name, parameter in zip(quantizer.inputs[1:], parameters, strict=True):
        if quantizer.type == "DequantizeLinear" or (parameter.size == 1 and parameter.ndim <= 2):
            names.append(name)
            continue
        whole = parameter.reshape((1,) * (4 - parameter.ndim) + parameter.shape)
        if whole.size == whole.shape[0]:
            names.append(draft.constant(f"{name}/matrix", whole.reshape(1, -1)))
        elif groups == 1:
            spread = np.broadcast_to(whole, weight.shape)
            names.append(draft.constant(f"{name}/matrix", _as_matrix(spread, groups)))
        else:
            return None
    result = unused(f"{op.inputs[1]}/matrix", draft.taken)
    draft.values[result] = Value(result, None, draft.graph.values[op.inputs[1]].dtype)
    own = unused(f"{quantizer.name}/matrix", draft.names)
    draft.ops.append(Op(own, quantizer.type, tuple(names), (result,), attributes, scope=op.scope))
    return result


def _in_place(name: str, array: np.ndarray, draft: Draft, reader: Reader) -> str:
    """A constant of other numbers under its own name, where nothing else reads it."""
    if reader.counts[name] > 1:
        return draft.constant(f"{name}/matrix", array)
    draft.set_constant(name, array)
    return name


def _as_matrix(weight: np.ndarray, groups: int) -> np.ndarray:
    c_out, inner = weight.shape[:2]
    if groups > 1:
        whole = np.zeros((c_out, inner * groups, *weight.shape[2:]), weight.dtype)
        for channel in range(c_out):
            first = channel // (c_out // groups) * inner
            whole[channel, first : first + inner] = weight[channel]
        weight = whole
    return np.ascontiguousarray(weight.transpose(2, 3, 1, 0).reshape(-1, c_out))
