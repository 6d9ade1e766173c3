"""Compound ops: operators of QONNX and FINN that are several standard operators, opened into these.

Channels-last Conv, MaxPool and BatchNormalization, MaxPoolNHWC; QuantAvgPool2d, a sum whose low bits go;
XnorPopcountMatMul, a count of equal bits; Im2Col, the patches that a convolution multiplies. Results are
those of the qonnx executor bit for bit. Source: QONNX operator classes of `custom_op.general`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.dtypes import dtype_of
from planner.formats.onnx.naming import unused
from planner.formats.onnx.operators.limits import Operands
from planner.formats.onnx.quantized.dialect import (
    CHANNELS_LAST,
    CHANNELS_LAST_OPERANDS,
    IM2COL,
    MAX_POOL_NHWC,
    QUANT_AVG_POOL,
    XNOR_POPCOUNT,
)
from planner.ir.graph import Constant, Facts, Graph, Op, Shape, Value
from planner.ir.types.qtypes import Bipolar, Uniform, storage

Opener: TypeAlias = Callable[["_Work", Op], None]

_TO_FIRST: Final = (0, 3, 1, 2)
_TO_LAST: Final = (0, 2, 3, 1)
_IMAGE: Final = 4
_WIDEST: Final = 32
_LAYOUTS: Final = ("NCHW", "NHWC")
_MOST: Final = (1 << 31) - 1
_DIMENSION: Final = re.compile(r"[0-9]{1,10}")
_MOST_INDICES: Final = 1 << 22
"""Rows or columns that the windows of an Im2Col may pick in all: they are an array of the opened model."""
_COUNTS: Final = {"BatchNormalization": (5, 5, 2), "Conv": (2, 3, 3), "MaxPool": (1, 1, 3)}
"""Least and most operands of channels-last ops, and the least rank of the first."""


@dataclass(slots=True)
class _Work:
    """A graph and the ops that take the place of its own."""

    graph: Graph
    taken: set[str]
    names: set[str]
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def shape(self, name: str) -> Shape | None:
        """The known part of a value's shape."""
        return self.graph.values[name].shape

    def constant(self, op: Op, part: str, array: np.ndarray, facts: Facts = ()) -> str:
        """Add a constant under a free name."""
        name = unused(f"{op.outputs[0]}/{part}", self.taken)
        self.constants[name] = array
        self.values[name] = Value(name, array.shape, dtype_of(array), facts)
        return name

    def emit(
        self,
        op: Op,
        kind: str,
        *inputs: str,
        out: str = "",
        dtype: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Append a step of `op`, the last under its own name, and give its result."""
        result = out or unused(f"{op.outputs[0]}/{kind.rpartition('::')[2].lower()}", self.taken)
        if not out:
            self.values[result] = Value(result, None, dtype)
        name = op.name if out else unused(f"{op.name}/{kind.rpartition('::')[2].lower()}", self.names)
        self.ops.append(Op(name, kind, inputs, (result,), attributes or {}, scope=op.scope))
        return result

    def state(self, name: str, facts: Facts) -> None:
        """Put a type on a value that has none."""
        old = self.values.get(name) or self.graph.values[name]
        if not old.facts:
            self.values[name] = replace(old, facts=facts)


def has_compounds(graph: Graph) -> bool:
    """Whether there is anything to open."""
    return any(op.type in OPENERS for op in graph.ops)


def open_compounds(graph: Graph) -> Graph:
    """Each compound op as standard ones; the same graph if there is none.

    Args:
      graph: ops spelled one way (`dialect.canonical`), parameters looked at (`parameters`).

    Raises:
      ModelError: a size that the op needs is not known.
    """
    if not has_compounds(graph):
        return graph
    work = _Work(graph, set(graph.values), {op.name for op in graph.ops})
    for op in graph.ops:
        opener = OPENERS.get(op.type)
        if opener is None:
            work.ops.append(op)
        else:
            opener(work, op)
    used = {op.type.rpartition("::")[0] for op in work.ops}
    opsets = {key: number for key, number in graph.opsets.items() if not key or key in used}
    opsets |= {domain: 1 for domain in used if domain and domain not in opsets}
    return replace(
        graph,
        ops=tuple(work.ops),
        values={**graph.values, **work.values},
        constants={**graph.constants, **{name: Constant(array) for name, array in work.constants.items()}},
        opsets=opsets,
    )


def _channels_last(work: _Work, op: Op) -> None:
    """The standard op between transposes; of operands those that lie channels last are turned."""
    kind = op.type.rpartition("::")[2]
    rank = _rank(op, work.shape(op.inputs[0]))
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    inputs = list(op.inputs)
    for i in range(CHANNELS_LAST_OPERANDS[op.type]):
        turned = work.emit(op, "Transpose", inputs[i], dtype="f32", attributes={"perm": first})
        old = work.graph.values.get(inputs[i])
        shape = None if old is None or old.shape is None else tuple(old.shape[axis] for axis in first)
        work.values[turned] = Value(turned, shape, old.dtype if old is not None else "f32")
        inputs[i] = turned
    result = work.emit(op, kind, *inputs, attributes=op.attributes)
    work.emit(op, "Transpose", result, out=op.outputs[0], attributes={"perm": last})


def _rank(op: Op, shape: Sequence[object] | None) -> int:
    kernel = op.attributes.get("kernel_shape")
    if kernel is not None:
        return len(kernel) + 2
    return _IMAGE if shape is None else len(shape)


def _max_pool(work: _Work, op: Op) -> None:
    turned = work.emit(op, "Transpose", op.inputs[0], attributes={"perm": _TO_FIRST})
    most = work.emit(op, "MaxPool", turned, attributes=op.attributes)
    work.emit(op, "Transpose", most, out=op.outputs[0], attributes={"perm": _TO_LAST})


def _average_pool(work: _Work, op: Op) -> None:
    """The mean times the size of its window, rounded, without the low bits that the width has no room for."""
    size, stride, bits = (op.attributes[key] for key in ("kernel", "stride", "obits"))
    is_last = op.attributes["data_layout"] == "NHWC"
    x = work.emit(op, "Transpose", op.inputs[0], attributes={"perm": _TO_FIRST}) if is_last else op.inputs[0]
    window = {"kernel_shape": (size, size), "strides": (stride, stride)}
    area = size * size
    wide = ((2 ** op.attributes["ibits"] - 1) * area).bit_length()
    cut = max(wide - bits, 0)
    out = "" if is_last else op.outputs[0]
    # Each step bears the grid it is on: of a coarser sum the low bits that go would take others along.
    mean = work.emit(op, "AveragePool", x, attributes=window)
    total = work.emit(op, "Mul", mean, work.constant(op, "window", np.asarray(area, np.float32)))
    last = work.emit(op, "Round", total, out="" if cut else out)
    steps = [(mean, wide, 1 / area), (total, wide, 1.0), (last, wide, 1.0)]
    if cut:
        part = work.emit(op, "Mul", last, work.constant(op, "step", np.asarray(2.0**-cut, np.float32)))
        last = work.emit(op, "Floor", part, out=out)
        steps += [(part, wide, 2.0**-cut), (last, bits, 1.0)]
    if is_last:
        last = work.emit(op, "Transpose", last, out=op.outputs[0], attributes={"perm": _TO_LAST})
        steps.append((last, min(bits, wide), 1.0))
    for name, width, scale in steps:
        if width <= _WIDEST // 2:
            kind = storage(f"{'i' if op.attributes['signed'] else 'u'}{width}")
            work.state(name, (Uniform(kind, (float(np.float32(scale)),), (0,)),))


def _xnor_popcount(work: _Work, op: Op) -> None:
    """The product of bits as -1 and 1, and from it the number of places at which they are equal."""
    depth = _depth(work, op)
    sides = [_signs(work, op, name) for name in op.inputs]
    product = work.emit(op, "MatMul", *sides)
    total = work.emit(op, "Add", product, work.constant(op, "depth", np.asarray(depth, np.float32)))
    work.emit(op, "Mul", total, work.constant(op, "half", np.asarray(0.5, np.float32)), out=op.outputs[0])


def _depth(work: _Work, op: Op) -> int:
    for name, axis in ((op.inputs[0], -1), (op.inputs[1], 0)):
        shape = work.shape(name)
        depth = shape[axis] if shape else None
        if isinstance(depth, int):
            return depth
    raise ModelError(
        f"XnorPopcountMatMul at {op.name!r}: the depth of {op.inputs[0]!r} and {op.inputs[1]!r} is not known",
        hint="give the last dimension of the first or the first one of the second a size",
    )


def _signs(work: _Work, op: Op, name: str) -> str:
    """Twice an operand less one; bits become -1 and 1, and bear that type."""
    constant = work.graph.constants.get(name)
    sign = (Bipolar("f32", 1.0),)
    if constant is not None and constant.array is not None:
        signs = np.asarray(2.0 * constant.array.astype(np.float32) - 1.0, np.float32)
        return work.constant(op, f"{name}_signs", signs, sign if np.all(np.abs(signs) == 1) else ())
    two = work.constant(op, "two", np.asarray(2, np.float32))
    one = work.constant(op, "one", np.asarray(1, np.float32))
    result = work.emit(op, "Sub", work.emit(op, "Mul", name, two), one)
    facts = work.graph.values[name].facts
    if any(isinstance(fact, Uniform) and str(fact.storage) == "u1" for fact in facts):
        work.state(result, sign)
    return result


def _im2col(work: _Work, op: Op) -> None:
    """Pad, then for each place of the result the rows and columns of its window, channels innermost."""
    height, width, channels = _image_of(work, op)
    pads = op.attributes["pad_amount"]
    _refuse_vast(op, "padded image", (height + pads[0] + pads[2], width + pads[1] + pads[3], channels))
    rows, columns = (_window(op, axis, size) for axis, size in ((0, height), (1, width)))
    _refuse_vast(op, "result", (*rows.shape, *columns.shape, channels))
    x = op.inputs[0]
    if any(pads):
        spread = np.asarray((0, pads[0], pads[1], 0, 0, pads[2], pads[3], 0), np.int64)
        value = np.asarray(op.attributes["pad_value"], np.float32)
        x = work.emit(op, "Pad", x, work.constant(op, "pads", spread), work.constant(op, "pad_value", value))
    picked = work.emit(op, "Gather", x, work.constant(op, "rows", rows), attributes={"axis": 1})
    both = work.emit(op, "Gather", picked, work.constant(op, "columns", columns), attributes={"axis": 3})
    turned = work.emit(op, "Transpose", both, attributes={"perm": (0, 1, 3, 2, 4, 5)})
    sizes = (0, rows.shape[0], columns.shape[0], rows.shape[1] * columns.shape[1] * channels)
    shape = work.constant(op, "shape", np.asarray(sizes, np.int64))
    work.emit(op, "Reshape", turned, shape, out=op.outputs[0])


def _window(op: Op, axis: int, size: int) -> np.ndarray:
    """Indices (places of the result, places of the window) into a padded dimension."""
    kernel, stride, dilation = (op.attributes[key][axis] for key in ("kernel_size", "stride", "dilations"))
    pads = op.attributes["pad_amount"]
    count = (size + pads[axis] + pads[axis + 2] - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ModelError(
            f"Im2Col at {op.name!r}: a window of {kernel} places does not fit {size} with its pads",
            hint="accepted: windows that fit the padded image",
        )
    if count * kernel > _MOST_INDICES:
        way = ("height", "width")[axis]
        raise ModelError(
            f"Im2Col at {op.name!r}: {count} windows of {kernel} places along its {way}",
            hint=f"accepted: up to {_MOST_INDICES} places in all windows",
        )
    return np.asarray(stride * np.arange(count)[:, None] + dilation * np.arange(kernel)[None, :], np.int64)


def _refuse_vast(op: Op, what: str, sizes: tuple[int, ...]) -> None:
    if prod(sizes) > _MOST:
        raise ModelError(
            f"Im2Col at {op.name!r}: its {what} has {prod(sizes)} elements for each image",
            hint=f"accepted: up to {_MOST}",
        )


def _image_of(work: _Work, op: Op) -> tuple[int, int, int]:
    """Height, width and channels: the tensor's, and where it is open the op's own attribute."""
    said = _said_shape(op.attributes["input_shape"])
    shape = work.shape(op.inputs[0])
    known = [*shape[1:]] if shape is not None and len(shape) == _IMAGE else [None, None, None]
    sizes = [
        b if not isinstance(a, int) else a for a, b in zip(known, said[1:] if said else known, strict=True)
    ]
    if not all(isinstance(size, int) for size in sizes):
        raise ModelError(
            f"Im2Col at {op.name!r} reads {op.inputs[0]!r} of unknown height, width or channels",
            hint="size these dimensions, or give the attribute input_shape as (N, H, W, C)",
        )
    height, width, channels = (int(size) for size in sizes if isinstance(size, int))
    return height, width, channels


def _said_shape(text: Any) -> tuple[int, ...] | None:
    """The four numbers of `(1, 8, 8, 3)`; None where the text is none of this kind."""
    parts = str(text).strip().removeprefix("(").removesuffix(")").split(",")
    if len(parts) != _IMAGE or not all(_DIMENSION.fullmatch(part.strip()) for part in parts):
        return None
    return tuple(int(part) for part in parts)


def channels_last_problems(op: Op, operands: Operands) -> Iterator[str]:
    """Reasons why a channels-last op cannot be transposed: operands that are missing or of other ranks."""
    kind = op.type.rpartition("::")[2]
    least, most, lowest = _COUNTS[kind]
    given = len(op.inputs)
    lacking = next((i for i in range(least) if i >= given or not op.inputs[i]), None)
    if lacking is not None or given > most:
        port = f"port {op.name}.in[{most if lacking is None else lacking}]"
        count = str(least) if least == most else f"{least} to {most}"
        yield f"{port} is {'one too many' if lacking is None else 'missing'}; accepted: {count} operands"
        return
    kernel = op.attributes.get("kernel_shape")
    if kernel is not None:
        is_list = isinstance(kernel, tuple) and all(isinstance(item, int) for item in kernel)
        if not is_list or not kernel or not all(1 <= item <= _MOST for item in kernel):
            accepted = "a list of integers of 1 or more"
            yield f"its attribute 'kernel_shape' is {_text(kernel)}; accepted: {accepted}"
            return
    rank = _rank(op, operands.shape(0))
    for i in range(CHANNELS_LAST_OPERANDS[op.type]):
        shape = operands.shape(i)
        if (shape is not None and len(shape) != rank) or rank < lowest:
            has = rank if shape is None else len(shape)
            wanted = f"{lowest} or more" if kernel is None and i == 0 else str(rank)
            yield f"port {op.name}.in[{i}] has {has} dimensions; accepted: {wanted}"
            return


def result_problems(op: Op, _operands: Operands) -> Iterator[str]:
    """A compound op gives something."""
    if not op.outputs or not op.outputs[0]:
        yield f"port {op.name}.out[0] is missing; accepted: one result"


def im2col_problems(op: Op, operands: Operands) -> Iterator[str]:
    """Errors in the attributes and operands of an Im2Col."""
    yield from _lists(op, {"kernel_size": 2, "stride": 2, "dilations": 2}, least=1)
    yield from _lists(op, {"pad_amount": 4}, least=0)
    yield from _whole(op, {"pad_value": None})
    said, shape = _said_shape(op.attributes["input_shape"]), operands.shape(0)
    if op.attributes["input_shape"] and said is None:
        yield f"its attribute 'input_shape' is {op.attributes['input_shape']!r}; accepted: (N, H, W, C)"
    if shape is None:
        return
    if len(shape) != _IMAGE:
        yield f"a tensor of {len(shape)} dimensions; accepted: (N, H, W, C)"
    elif said is not None and any(a not in (None, b) for a, b in zip(shape[1:], said[1:], strict=True)):
        given = ", ".join("?" if size is None else str(size) for size in shape)
        yield f"its attribute 'input_shape' is {op.attributes['input_shape']} for a tensor of [{given}]"


def max_pool_problems(op: Op, operands: Operands) -> Iterator[str]:
    """Errors in the attributes and operands of a MaxPoolNHWC."""
    yield from _lists(op, {"kernel_shape": 2, "strides": 2}, least=1)
    yield from _lists(op, {"pads": 4}, least=0)
    yield from _image(operands, "(N, H, W, C)")


def average_pool_problems(op: Op, operands: Operands) -> Iterator[str]:
    """Errors in the attributes and operands of a QuantAvgPool2d."""
    yield from _whole(op, {"kernel": 1, "stride": 1, "ibits": 1, "obits": 1})
    for key in ("ibits", "obits"):
        if isinstance(op.attributes.get(key), int) and op.attributes[key] > _WIDEST:
            yield f"its attribute {key!r} is {op.attributes[key]}; accepted: 1 to {_WIDEST}"
    layout = op.attributes["data_layout"]
    if layout not in _LAYOUTS:
        yield f"its attribute 'data_layout' is {layout!r}; accepted: {', '.join(_LAYOUTS)}"
    yield from _image(operands, "(N, C, H, W), or (N, H, W, C)")


def xnor_problems(_op: Op, operands: Operands) -> Iterator[str]:
    """Errors in the attributes and operands of an XnorPopcountMatMul."""
    a, b = operands.shape(0), operands.shape(1)
    if b is not None and len(b) != 2:
        yield f"its second operand has {len(b)} dimensions; accepted: 2"
    elif a is not None and b is not None and (not a or None not in (a[-1], b[0])) and a[-1:] != b[:1]:
        yield f"its operands have the depths {a[-1] if a else 'none'} and {b[0]}; accepted: the same"
    for index in range(2):
        array = operands.array(index)
        if array is not None and not np.isin(array, (0, 1)).all():
            yield f"operand {index} holds other numbers than bits; accepted: 0 and 1"


def _image(operands: Operands, accepted: str) -> Iterator[str]:
    shape = operands.shape(0)
    if shape is not None and len(shape) != _IMAGE:
        yield f"a tensor of {len(shape)} dimensions; accepted: {accepted}"


def _lists(op: Op, counts: Mapping[str, int], *, least: int) -> Iterator[str]:
    for key, count in counts.items():
        given = op.attributes.get(key)
        is_list = isinstance(given, tuple) and len(given) == count
        if not is_list or not all(isinstance(item, int) and least <= item <= _MOST for item in given or ()):
            accepted = f"{count} integers of {least} or more, up to {_MOST}"
            yield f"its attribute {key!r} is {_text(given)}; accepted: {accepted}"


def _whole(op: Op, least: Mapping[str, int | None]) -> Iterator[str]:
    for key, low in least.items():
        given = op.attributes.get(key)
        if not isinstance(given, int) or (low is not None and not low <= given <= _MOST):
            more = "" if low is None else f" of {low} or more, up to {_MOST}"
            yield f"its attribute {key!r} is {_text(given)}; accepted: an integer{more}"


def _text(given: Any) -> str:
    return "missing" if given is None else str(list(given) if isinstance(given, Sequence) else given)


OPENERS: Final[Mapping[str, Opener]] = {
    **{f"{CHANNELS_LAST}::{kind}": _channels_last for kind in ("BatchNormalization", "Conv", "MaxPool")},
    IM2COL: _im2col,
    MAX_POOL_NHWC: _max_pool,
    QUANT_AVG_POOL: _average_pool,
    XNOR_POPCOUNT: _xnor_popcount,
}
