"""Operators of a graph as torch functions, for training: a table by ONNX type.

Operands that say a shape, axes or bounds are constants of the model. Source: ONNX operator pages.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from planner.errors import InputError
from planner.ir.graph import Op
from planner.ops.geometry.windows import conv_geometry, pool_geometry, pooled_sizes

Operands: TypeAlias = Sequence[Tensor | None]
Statics: TypeAlias = Sequence[Any]
"""Numbers of the operands that say shapes, indices or bounds, None for others."""
Function: TypeAlias = Callable[[Op, Operands, Statics], Tensor | tuple[Tensor, ...]]

_CONVS: Final = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED: Final = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)
_MAX_POOLS: Final = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)


def _x(operands: Operands, index: int = 0) -> Tensor:
    found = operands[index] if index < len(operands) else None
    if found is None:
        raise TypeError(f"operand {index} is absent")
    return found


def _optional(operands: Operands, index: int) -> Tensor | None:
    return operands[index] if index < len(operands) else None


def _numbers(op: Op, statics: Statics, index: int, attribute: str = "") -> list[int] | None:
    """Whole numbers of a constant operand, or of the attribute that older operators have."""
    given = statics[index] if index < len(statics) else None
    if given is not None:
        return [int(number) for number in (given if isinstance(given, list) else [given])]
    if index < len(op.inputs) and op.inputs[index]:
        raise InputError(
            f"{op.type} at {op.name!r} computes {op.inputs[index]!r} while it runs; training takes constants"
        )
    found = op.attributes.get(attribute) if attribute else None
    return (
        None
        if found is None
        else [int(number) for number in (found if isinstance(found, list | tuple) else [found])]
    )


def _number(value: Any) -> float:
    """A number that a constant holds, whatever its rank."""
    while isinstance(value, list):
        (value,) = value
    return float(value)


def _padded(x: Tensor, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """Pad the last axes by ONNX's pads: all begins, then all ends."""
    if not any(pads):
        return x
    rank = len(pads) // 2
    pairs = [(pads[i], pads[rank + i]) for i in range(rank)]
    return functional.pad(x, [end for pair in reversed(pairs) for end in pair], value=value)


def _conv(op: Op, operands: Operands, _: Statics) -> Tensor:
    x, w = _x(operands), _x(operands, 1)
    geometry = conv_geometry(op.attributes, x.shape[2:], w.shape[2:])
    rank = x.dim() - 2
    conv = _CONVS[rank - 1]
    found: Tensor = conv(
        _padded(x, geometry.pads),
        w,
        _optional(operands, 2),
        geometry.strides,
        0,
        geometry.dilations,
        geometry.group,
    )
    return found


def _conv_transpose(op: Op, operands: Operands, _: Statics) -> Tensor:
    x, w = _x(operands), _x(operands, 1)
    geometry = conv_geometry(op.attributes, x.shape[2:], w.shape[2:]).filled(x.dim() - 2)
    rank = x.dim() - 2
    if op.attributes.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in op.attributes:
        raise InputError(f"ConvTranspose at {op.name!r} has auto_pad or output_shape; training takes pads")
    found: Tensor = _TRANSPOSED[rank - 1](
        x, w, _optional(operands, 2), geometry.strides, 0, 0, geometry.group, geometry.dilations
    )
    # ONNX cuts the pads off the whole result, and adds the output padding at its end.
    for i in range(rank):
        begin, end = geometry.pads[i], geometry.pads[rank + i] - geometry.output_padding[i]
        axis = 2 + i
        if end < 0:
            widths = [0, 0] * (rank - 1 - i) + [0, -end]
            found, end = functional.pad(found, widths), 0
        found = found.narrow(axis, begin, found.shape[axis] - begin - end)
    return found


def _gemm(op: Op, operands: Operands, _: Statics) -> Tensor:
    a, b = _x(operands), _x(operands, 1)
    a = a.transpose(-1, -2) if op.attributes.get("transA") else a
    b = b.transpose(-1, -2) if op.attributes.get("transB") else b
    found = torch.matmul(a, b)
    alpha, beta = op.attributes.get("alpha", 1.0), op.attributes.get("beta", 1.0)
    found = found if alpha == 1.0 else found * alpha
    c = _optional(operands, 2)
    return found if c is None else found + (c if beta == 1.0 else c * beta)


def _max_pool(op: Op, operands: Operands, _: Statics) -> Tensor:
    x = _x(operands)
    geometry = pool_geometry(op.attributes, x.shape[2:])
    pool = _MAX_POOLS[x.dim() - 3]
    found: Tensor = pool(
        _padded(x, geometry.pads, -torch.inf),
        geometry.kernel,
        geometry.strides,
        0,
        geometry.dilations,
        ceil_mode=geometry.ceil_mode,
    )
    # A window that starts in the end padding is none; to torch the pads are pixels here.
    for axis, size in enumerate(pooled_sizes(x.shape[2:], geometry), 2):
        found = found.narrow(axis, 0, size)
    return found


def _average_pool(op: Op, operands: Operands, _: Statics) -> Tensor:
    x = _x(operands)
    geometry = pool_geometry(op.attributes, x.shape[2:])
    if geometry.ceil_mode or any(step != 1 for step in geometry.dilations):
        raise InputError(
            f"AveragePool at {op.name!r} has ceil_mode or dilations, which training does not take"
        )
    sums = _window_sums(_padded(x, geometry.pads), geometry.kernel, geometry.strides)
    if op.attributes.get("count_include_pad", 0) or not any(geometry.pads):
        return sums / float(math.prod(geometry.kernel))
    ones = _padded(torch.ones_like(x[:1, :1]), geometry.pads)
    return sums / _window_sums(ones, geometry.kernel, geometry.strides)


def _window_sums(x: Tensor, kernel: Sequence[int], strides: Sequence[int]) -> Tensor:
    pools = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
    found: Tensor = pools[x.dim() - 3](x, tuple(kernel), tuple(strides))
    return found * float(math.prod(kernel))


def _axes(op: Op, operands: Operands, statics: Statics, index: int = 1) -> list[int]:
    x = _x(operands)
    given = _numbers(op, statics, index, "axes")
    if not given:
        return [] if op.attributes.get("noop_with_empty_axes") else list(range(x.dim()))
    return [axis % x.dim() for axis in given]


def _reduced(function: Callable[..., Tensor]) -> Function:
    def reduce(op: Op, operands: Operands, statics: Statics) -> Tensor:
        axes = _axes(op, operands, statics)
        x = _x(operands)
        return function(x, axes, keepdim=bool(op.attributes.get("keepdims", 1))) if axes else x

    return reduce


def _global(function: Callable[..., Tensor]) -> Function:
    def pool(_op: Op, operands: Operands, _: Statics) -> Tensor:
        x = _x(operands)
        return function(x, list(range(2, x.dim())), keepdim=True)

    return pool


def _reshape(op: Op, operands: Operands, statics: Statics) -> Tensor:
    x, wanted = _x(operands), _numbers(op, statics, 1, "shape") or []
    if not op.attributes.get("allowzero"):
        wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    return x.reshape(wanted)


def _flatten(op: Op, operands: Operands, _: Statics) -> Tensor:
    x = _x(operands)
    axis = op.attributes.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(int(math.prod(x.shape[:axis])), -1)


def _transpose(op: Op, operands: Operands, _: Statics) -> Tensor:
    x = _x(operands)
    return x.permute(tuple(op.attributes.get("perm") or reversed(range(x.dim()))))


def _squeeze(op: Op, operands: Operands, statics: Statics) -> Tensor:
    x, axes = _x(operands), _numbers(op, statics, 1, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(op: Op, operands: Operands, statics: Statics) -> Tensor:
    x, axes = _x(operands), _numbers(op, statics, 1, "axes") or []
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _concat(op: Op, operands: Operands, _: Statics) -> Tensor:
    return torch.cat([_x(operands, i) for i in range(len(operands))], dim=op.attributes["axis"])


def _split(op: Op, operands: Operands, statics: Statics) -> tuple[Tensor, ...]:
    x, axis = _x(operands), op.attributes.get("axis", 0)
    sizes = _numbers(op, statics, 1, "split")
    count = len(op.outputs)
    return torch.split(x, sizes or -(-x.shape[axis] // count), dim=axis)


def _slice(op: Op, operands: Operands, statics: Statics) -> Tensor:
    x = _x(operands)
    starts, ends = (_numbers(op, statics, i, key) or [] for i, key in ((1, "starts"), (2, "ends")))
    axes = _numbers(op, statics, 3, "axes") or list(range(len(starts)))
    steps = _numbers(op, statics, 4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        places = range(x.shape[axis])[start:end:step]
        x = x.index_select(axis, torch.tensor(list(places), dtype=torch.long, device=x.device))
    return x


def _pad(op: Op, operands: Operands, statics: Statics) -> Tensor:
    x, pads = _x(operands), _numbers(op, statics, 1, "pads") or []
    axes = _numbers(op, statics, 3)
    if op.attributes.get("mode", "constant") != "constant" or axes is not None:
        raise InputError(f"Pad at {op.name!r} has axes or another mode than constant")
    value = statics[2] if len(statics) > 2 and statics[2] is not None else op.attributes.get("value", 0.0)
    return _padded(x, pads, _number(value))


def _clip(op: Op, operands: Operands, statics: Statics) -> Tensor:
    ends = [op.attributes.get("min"), op.attributes.get("max")]
    for i in (1, 2):
        if i < len(op.inputs) and op.inputs[i]:
            if statics[i] is None:
                raise InputError(f"Clip at {op.name!r} has bounds that are no constants")
            ends[i - 1] = _number(statics[i])
    return _x(operands) if ends == [None, None] else _x(operands).clamp(*ends)


def _pow(_op: Op, operands: Operands, _: Statics) -> Tensor:
    return torch.pow(_x(operands), _x(operands, 1))


def _batch_norm(op: Op, operands: Operands, _: Statics) -> Tensor:
    x, scale, bias, mean, variance = (_x(operands, i) for i in range(5))
    return functional.batch_norm(x, mean, variance, scale, bias, eps=op.attributes.get("epsilon", 1e-5))


def _layer_norm(op: Op, operands: Operands, _: Statics) -> Tensor:
    x, scale = _x(operands), _x(operands, 1)
    axis = op.attributes.get("axis", -1) % x.dim()
    shape = x.shape[axis:]
    bias = _optional(operands, 2)
    wide = [None if part is None else part.expand(shape) for part in (scale, bias)]
    return functional.layer_norm(x, shape, *wide, eps=op.attributes.get("epsilon", 1e-5))


def _gather(op: Op, operands: Operands, statics: Statics) -> Tensor:
    x, axis = _x(operands), op.attributes.get("axis", 0)
    indices = _x(operands, 1) if statics[1] is None else torch.tensor(statics[1], device=x.device)
    axis = axis % x.dim()
    places = torch.where(indices < 0, indices + x.shape[axis], indices).to(torch.long)
    found = x.index_select(axis, places.reshape(-1))
    return found.reshape((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


def _one(function: Callable[[Tensor], Tensor]) -> Function:
    return lambda _op, operands, _statics: function(_x(operands))


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda _op, operands, _statics: function(_x(operands), _x(operands, 1))


def _softmax(op: Op, operands: Operands, _: Statics) -> Tensor:
    return torch.softmax(_x(operands), dim=op.attributes.get("axis", -1))


def _gelu(op: Op, operands: Operands, _: Statics) -> Tensor:
    return functional.gelu(_x(operands), approximate=op.attributes.get("approximate", "none"))


def _leaky_relu(op: Op, operands: Operands, _: Statics) -> Tensor:
    return functional.leaky_relu(_x(operands), op.attributes.get("alpha", 0.01))


def _hard_sigmoid(op: Op, operands: Operands, _: Statics) -> Tensor:
    alpha, beta = op.attributes.get("alpha", 0.2), op.attributes.get("beta", 0.5)
    return (_x(operands) * alpha + beta).clamp(0.0, 1.0)


FUNCTIONS: Final[Mapping[str, Function]] = {
    "Abs": _one(torch.abs),
    "Add": _two(torch.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _two(torch.div),
    "Dropout": _one(lambda x: x),
    "Erf": _one(torch.erf),
    "Exp": _one(torch.exp),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _global(torch.mean),
    "GlobalMaxPool": _global(torch.amax),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _one(functional.hardswish),
    "Identity": _one(lambda x: x),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _leaky_relu,
    "MatMul": _two(torch.matmul),
    "MaxPool": _max_pool,
    "Mul": _two(torch.mul),
    "Neg": _one(torch.neg),
    "Pad": _pad,
    "Pow": _pow,
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "Relu": _one(torch.relu),
    "Reshape": _reshape,
    "Sigmoid": _one(torch.sigmoid),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _one(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _two(torch.sub),
    "Tanh": _one(torch.tanh),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The function of each operator, by its ONNX name."""
