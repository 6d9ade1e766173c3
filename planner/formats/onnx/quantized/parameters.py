"""Parameters: operands and attributes with which a quantizer computes no numbers are refused.

A scale of 0, a width of 2000 bits or a string would go on as NaN, as an empty range, or end in a crash far
from here. In: any graph, quantizers spelled one way; parameters computed at run time are not checked. A
stored constant may have scales of 0: exporters give them to channels that are 0, and engines run that.
Source: QONNX and FINN operator pages; ONNX QuantizeLinear; onnxruntime's contrib operators.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.operators.limits import Dims, Operands
from planner.formats.onnx.quantized.compound_ops import (
    average_pool_problems,
    channels_last_problems,
    im2col_problems,
    max_pool_problems,
    result_problems,
    xnor_problems,
)
from planner.formats.onnx.quantized.dialect import (
    BIPOLAR,
    CHANNELS_LAST_OPERANDS,
    FLOAT_QUANT,
    IM2COL,
    MAX_POOL_NHWC,
    MULTI_THRESHOLD,
    QUANT,
    QUANT_AVG_POOL,
    STORED,
    TRUNC,
    XNOR_POPCOUNT,
    Stored,
)
from planner.formats.onnx.quantized.lowering import checked_rounding
from planner.ir.graph import Graph, Op

Rule: TypeAlias = Callable[[Op, Operands], Iterator[str]]

MOST_BITS: Final = 64
_LAYOUTS: Final = ("NC", "NCHW", "NCW", "NHWC", "NWC")
_REALS: Final = ("f16", "f32", "f64")
_SCALE: Final = "accepted: finite numbers above 0"
_NUMBER: Final = "accepted: finite numbers"
_WIDTH: Final = f"accepted: 1 to {MOST_BITS}, fractions too"


@dataclass(frozen=True, slots=True)
class _Operand:
    """A parameter of a quantizer: where it stands, its name in messages, and what its numbers may be.

    Attributes:
      whole: whether there is one for the whole tensor alone.
    """

    index: int
    name: str
    accepts: Callable[[np.ndarray], bool]
    accepted: str
    whole: bool = False


def refuse_parameters(graph: Graph) -> None:
    """Refuse quantizers whose parameters are known and mean nothing.

    Raises:
      ModelError: the op, the parameter, and what it may be.
    """
    for op in graph.ops:
        rules = RULES.get(op.type)
        if rules is None:
            continue
        operands = Operands(graph, op)
        for problem in (text for rule in rules for text in rule(op, operands)):
            raise ModelError(f"{op.type.rpartition('::')[2]} at {op.name!r}: {problem}")


def _numbers(*given: _Operand) -> Rule:
    """Each of these operands, where it is a constant, holds numbers that mean something."""

    def rule(_op: Op, operands: Operands) -> Iterator[str]:
        for item in given:
            array, shape = operands.array(item.index), operands.shape(item.index)
            if item.whole and shape is not None and _size(shape) != 1:
                yield f"its {item.name} has the shape {_listed(shape)}; accepted: one number"
            if array is None:
                continue
            if array.dtype.kind not in "fiuV":
                what = "texts" if array.dtype.kind in "OSU" else str(array.dtype)
                yield f"its {item.name} holds {what}; {item.accepted}"
            elif not array.size or not item.accepts(array.astype(np.float64)):
                yield f"its {item.name} is {_shown(array)}; {item.accepted}"

    return rule


def _flags(*keys: str) -> Rule:
    def rule(op: Op, _operands: Operands) -> Iterator[str]:
        for key in keys:
            flag = op.attributes[key]
            if not isinstance(flag, int) or flag not in (0, 1):
                yield f"its attribute {key!r} is {flag!r}; accepted: 0 and 1"

    return rule


def _rounding(op: Op, _operands: Operands) -> Iterator[str]:
    checked_rounding(op)
    yield from ()


def _is_real(op: Op, operands: Operands) -> Iterator[str]:
    """QONNX's quantizers take floats, and what is not known yet."""
    dtype = operands.graph.values[op.inputs[0]].dtype
    if dtype not in ("", *_REALS):
        yield f"it quantizes {op.inputs[0]!r} of {dtype}; accepted: {', '.join(_REALS)}"


def _spreads(*indices: int) -> Rule:
    """These operands broadcast to the tensor, and do not make it bigger."""

    def rule(_op: Op, operands: Operands) -> Iterator[str]:
        shape = operands.shape(0)
        for given in (operands.shape(index) for index in indices):
            if shape is not None and given is not None and not _broadcasts(given, shape):
                yield f"parameters of shape {_listed(given)} do not broadcast to {_listed(shape)}"

    return rule


def _broadcasts(small: Dims, shape: Dims) -> bool:
    return len(small) <= len(shape) and all(
        a in (None, 1) or b in (None, a) for a, b in zip(small[::-1], shape[::-1], strict=False)
    )


def _truncated(op: Op, operands: Operands) -> Iterator[str]:
    """Of five operands the last is the width that is left; of six a scale comes before it."""
    rest = (
        (_width(4, "output width"),)
        if len(op.inputs) == 5
        else (_scale(4, "output scale"), _width(5, "output width"))
    )
    yield from _numbers(_scale(1), _zero(2), _width(3), *rest)(op, operands)


def _thresholds(op: Op, operands: Operands) -> Iterator[str]:
    """A list of thresholds per channel, or one for all."""
    shape, given = operands.shape(0), operands.shape(1)
    layout = op.attributes["data_layout"]
    if not isinstance(layout, str) or (layout and layout not in _LAYOUTS):
        yield f"its attribute 'data_layout' is {layout!r}; accepted: {', '.join(_LAYOUTS)}"
    for key in ("out_scale", "out_bias"):
        number = op.attributes[key]
        if not isinstance(number, (int, float)) or not np.isfinite(number):
            yield f"its attribute {key!r} is {number!r}; {_NUMBER}"
    if given is not None and len(given) != 2:
        yield f"thresholds of shape {_listed(given)}; accepted: [channels or 1, thresholds]"
    elif given is not None and shape is not None:
        axis = layout.index("C") if layout else 1
        # Channels first means axis 1 in any rank: qonnx takes its default, NCHW, for matrices too.
        if layout and axis != 1 and len(layout) != len(shape):
            yield f"its attribute 'data_layout' is {layout!r} for a tensor of {len(shape)} dimensions"
        elif axis >= len(shape):
            yield f"a tensor of {len(shape)} dimensions has no channels"
        elif layout and given[0] not in (None, 1) and shape[axis] not in (None, given[0]):
            yield f"thresholds of {given[0]} channels for a tensor {_listed(shape)}"


def _grid(op: Op, operands: Operands) -> Iterator[str]:
    """Scale and zero point of ONNX's pair are one number, one per slice of the axis, or one per block."""
    shape, scale, zero = (operands.shape(index) for index in range(3))
    if scale is None:
        return
    axis, block = op.attributes.get("axis", 1), op.attributes.get("block_size", 0)
    if block < 0:
        yield f"its attribute 'block_size' is {block}; accepted: 0 and more"
    if zero is not None and not _fits(zero, scale) and not _size(zero) == _size(scale) == 1:
        yield f"a zero point of shape {_listed(zero)} beside a scale of shape {_listed(scale)}"
    if shape is None or (_size(scale) == 1 and not block):
        return
    if not -len(shape) <= axis < len(shape):
        yield f"axis {axis} of a tensor of {len(shape)} dimensions"
    elif block:
        wanted = list(shape)
        sized = shape[axis]
        wanted[axis] = None if sized is None else -(-sized // block)
        if not _fits(scale, wanted):
            yield f"scales {_listed(scale)} in blocks of {block}; {_listed(wanted)} fit {_listed(shape)}"
    elif not _fits(scale, shape[axis:][:1]):
        yield f"scales of shape {_listed(scale)} along axis {axis} of {_listed(shape)}"


def _stored_zero(op: Op, operands: Operands) -> Iterator[str]:
    zero = operands.array(2)
    if zero is not None and operands.graph.values[op.inputs[0]].dtype == "i32" and zero.any():
        yield f"its zero point is {_shown(zero)}; accepted: 0, as it reads 32-bit integers"


def _is_used_up(_op: Op, operands: Operands) -> Iterator[str]:
    """Scales of 0 are those of a constant only."""
    scale = operands.array(1)
    if scale is not None and not scale.astype(np.float64).all() and operands.array(0) is None:
        yield f"its scale is {_shown(scale)}; {_SCALE}, and 0 for a stored constant"


def _size(dims: Dims) -> int:
    return int(np.prod([dim or 1 for dim in dims], dtype=object))


def _fits(given: Dims, wanted: Sequence[int | None]) -> bool:
    return len(given) == len(wanted) and all(
        None in pair or pair[0] == pair[1] for pair in zip(given, wanted, strict=True)
    )


def _listed(dims: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"


def _shown(array: np.ndarray) -> str:
    """A parameter as text: the number, or how many there are with the least and the largest."""
    numbers = array.astype(np.float64).reshape(-1)
    if array.size == 1:
        return f"{numbers[0]:g}"
    if not array.size:
        return "empty"
    return f"{array.size} numbers from {numbers.min():g} to {numbers.max():g}"


def _are_finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())


def _are_scales(array: np.ndarray) -> bool:
    return _are_finite(array) and bool((array > 0).all())


def _are_steps(array: np.ndarray) -> bool:
    return _are_finite(array) and bool((array >= 0).all())


def _are_widths(array: np.ndarray) -> bool:
    return _are_finite(array) and bool((array >= 1).all() and (array <= MOST_BITS).all())


def _are_ordered(array: np.ndarray) -> bool:
    return not np.isnan(array).any()


def _scale(index: int, name: str = "scale", *, whole: bool = False) -> _Operand:
    return _Operand(index, name, _are_scales, _SCALE, whole)


def _zero(index: int, name: str = "zero point", *, whole: bool = False) -> _Operand:
    return _Operand(index, name, _are_finite, _NUMBER, whole)


def _width(index: int, name: str = "bit width", *, whole: bool = False) -> _Operand:
    return _Operand(index, name, _are_widths, _WIDTH, whole)


def _stored(one: Stored) -> tuple[Rule, ...]:
    """The scales and zero points of an operator on stored integers."""
    return (
        _numbers(*(_scale(i, f"operand {i}, a scale,", whole=i not in one.wide) for i in one.scales)),
        _numbers(*(_zero(i, f"operand {i}, a zero point,", whole=i not in one.wide) for i in one.zeros)),
    )


_FLOAT: Final = (
    _scale(1),
    _Operand(
        2, "exponent's width", lambda a: _are_widths(a) and bool((a <= 11).all()), "accepted: 1 to 11", True
    ),
    _Operand(
        3, "mantissa's width", lambda a: _are_steps(a) and bool((a <= 52).all()), "accepted: 0 to 52", True
    ),
    _Operand(4, "exponent's bias", _are_finite, _NUMBER, True),
    _Operand(5, "largest value", _are_scales, _SCALE, True),
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    QUANT: (
        _is_real,
        _flags("signed", "narrow"),
        _rounding,
        _numbers(_scale(1), _zero(2), _width(3)),
        _spreads(1, 2, 3),
    ),
    BIPOLAR: (_is_real, _numbers(_scale(1)), _spreads(1)),
    TRUNC: (_is_real, _flags("signed", "narrow"), _rounding, _truncated, _spreads(1, 2, 3, 4, 5)),
    FLOAT_QUANT: (
        _is_real,
        _flags("has_inf", "has_nan", "has_subnormal", "saturation"),
        _rounding,
        _numbers(*_FLOAT),
        _spreads(1, 2, 3, 4, 5),
    ),
    MULTI_THRESHOLD: (
        _is_real,
        _numbers(_Operand(1, "list of thresholds", _are_ordered, _NUMBER)),
        _thresholds,
    ),
    IM2COL: (result_problems, _flags("depthwise"), im2col_problems),
    MAX_POOL_NHWC: (result_problems, _flags("ceil_mode"), max_pool_problems),
    QUANT_AVG_POOL: (result_problems, _flags("signed"), average_pool_problems),
    XNOR_POPCOUNT: (result_problems, xnor_problems),
    **dict.fromkeys(CHANNELS_LAST_OPERANDS, (result_problems, channels_last_problems)),
    "QuantizeLinear": (_numbers(_scale(1), _zero(2)), _grid),
    "DequantizeLinear": (
        _numbers(_Operand(1, "scale", _are_steps, _SCALE), _zero(2)),
        _is_used_up,
        _stored_zero,
        _grid,
    ),
    **{kind: _stored(one) for kind, one in STORED.items()},
}
"""The checks of a quantizer, by its type; of one with any number of operands they check the pairs."""
